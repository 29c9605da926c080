package callers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/identitytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// request returns one whose client certificate is valid for so long.
func request(t *testing.T, validFor time.Duration) *http.Request {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "CA"})
	require.NoError(t, err)
	pair, err := ca.IssueClient(pki.ClientOptions{
		CommonName: "a", SPIFFEID: identity.Caller{TrustDomain: identity.CallerTrustDomain, Agent: "a"}.URI().String(),
		Validity: pki.Validity{NotBefore: time.Now(), NotAfter: time.Now().Add(validFor)},
	})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	conn, other := net.Pipe()
	t.Cleanup(func() { require.NoError(t, errors.Join(conn.Close(), other.Close())) })
	r := httptest.NewRequestWithContext(callers.WithConnection(t.Context(), conn), http.MethodGet, "/api", http.NoBody)
	r.TLS = &tls.ConnectionState{
		HandshakeComplete: true, PeerCertificates: []*x509.Certificate{certificate.Leaf},
		VerifiedChains: [][]*x509.Certificate{{certificate.Leaf, ca.Certificate()}},
	}
	return r
}

func TestCertificateIsVerifiedOncePerConnectionUntilTrustChanges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tr := &identitytest.Trust{}
		who := callers.New(callers.Options{Trust: tr})
		r := request(t, time.Hour)
		bind := func() error {
			_, _, end, err := who.Bind(r)
			if err == nil {
				end()
			}
			return err
		}
		for range 10 {
			require.NoError(t, bind())
		}
		require.Equal(t, 1, tr.Verified())
		<-time.After(61 * time.Second)
		require.NoError(t, bind())
		require.Equal(t, 2, tr.Verified(), "a CA may have expired")
		tr.Change(errors.New("revoked"))
		require.ErrorContains(t, bind(), "revoked")
		tr.Change(nil)
		require.NoError(t, bind())
		<-time.After(time.Hour)
		require.ErrorContains(t, bind(), "has expired")
	})
}

func TestRequestEndsWhenItsCertificateExpiresOrIsRevoked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tr := &identitytest.Trust{}
		who := callers.New(callers.Options{Trust: tr})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { who.Run(ctx) })
		defer running.Wait()
		defer stop()

		_, first, end, err := who.Bind(request(t, time.Hour))
		require.NoError(t, err)
		defer end()
		began := time.Now()
		<-first.Context().Done()
		require.Equal(t, time.Hour, time.Since(began))
		require.ErrorContains(t, context.Cause(first.Context()), "has expired")

		_, second, end, err := who.Bind(request(t, time.Hour))
		require.NoError(t, err)
		defer end()
		tr.Change(nil)
		synctest.Wait()
		require.NoError(t, second.Context().Err())
		tr.Change(errors.New("revoked"))
		<-second.Context().Done()
		refusal := callers.CertificateError(second.Context())
		require.NotNil(t, refusal)
		require.Equal(t, http.StatusUnauthorized, refusal.Code)
		require.ErrorContains(t, refusal, "no longer trusted: revoked")
	})
}

func TestRequestWithoutClientCertificateIsUnauthorized(t *testing.T) {
	who := callers.New(callers.Options{Trust: &identitytest.Trust{}})
	for name, state := range map[string]*tls.ConnectionState{"plain": nil, "no certificate": {}} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", http.NoBody)
			r.TLS = state
			_, _, _, err := who.Bind(r)
			refusal := new(apihttp.Error)
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, http.StatusUnauthorized, refusal.Code)
		})
	}
}
