package callers_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/identitytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// sidecar is a connection of a proxy next to kubeproxy.
type sidecar struct{ net.Conn }

func (sidecar) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6), Port: 40000} }

// certificateOf issues that of a caller of an agent.
func certificateOf(t *testing.T, agent identity.Agent, validFor time.Duration) *x509.Certificate {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "CA"})
	require.NoError(t, err)
	pair, err := ca.IssueClient(pki.ClientOptions{Caller: agent, Validity: pki.Validity{NotBefore: time.Now(), NotAfter: time.Now().Add(validFor)}})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	return certificate.Leaf
}

// forwarded is the header of a caller, by its certificate, with these of Envoy's details.
func forwarded(x *x509.Certificate, details ...string) string {
	all := map[string]string{
		"hash": "Hash=" + blocklist.Certificate(x), "uri": "URI=" + x.URIs[0].String(),
		"cert": `Cert="` + strings.ReplaceAll(url.QueryEscape(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.Raw}))), "+", "%20") + `"`,
	}
	var parts []string
	for _, detail := range details {
		parts = append(parts, all[detail])
	}
	return strings.Join(parts, ";")
}

// proxied returns a request that came over a sidecar's connection.
func proxied(ctx context.Context, header string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", http.NoBody)
	r.Header.Set(xfcc.Header, header)
	return r
}

// A proxy keeps its connection, with whatever comes over it, for longer than certificates last.
func TestCertificateBehindAProxyExpires(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		who := callers.New(callers.Options{Trust: &identitytest.Trust{}, Proxies: identity.Proxies{Local: true}})
		ctx := callers.WithConnection(t.Context(), sidecar{})
		x := certificateOf(t, "a", time.Hour)
		_, bound, end, err := who.Bind(proxied(ctx, forwarded(x, "hash", "uri", "cert")))
		require.NoError(t, err)
		defer end()
		_, forDays, end, err := who.Bind(proxied(ctx, forwarded(x, "hash", "uri")))
		require.NoError(t, err)
		defer end()
		began := time.Now()
		<-bound.Context().Done()
		require.Equal(t, time.Hour, time.Since(began))
		require.ErrorContains(t, callers.CertificateError(bound.Context()), "has expired")
		_, _, _, err = who.Bind(proxied(ctx, forwarded(x, "hash", "uri", "cert")))
		require.ErrorContains(t, err, "has expired")

		// Where the proxy does not say when, a request lasts for a day. The next one is as good as the first was.
		<-forDays.Context().Done()
		require.Equal(t, 24*time.Hour, time.Since(began))
		_, _, end, err = who.Bind(proxied(ctx, forwarded(x, "hash", "uri")))
		require.NoError(t, err)
		end()
	})
}

func TestBlocklistHoldsBehindAProxy(t *testing.T) {
	stolen, other := certificateOf(t, "a", time.Hour), certificateOf(t, "b", time.Hour)
	for name, key := range map[string]string{
		"fingerprint": blocklist.Certificate(stolen), "URI": blocklist.URI(stolen.URIs[0].String()), "agent": blocklist.Agent("a"),
	} {
		t.Run(name, func(t *testing.T) {
			list := &blocked{changed: make(chan struct{})}
			table := tableOf(t)
			trust := callers.Restrict(identity.Verified(nil, nil), list, table)
			who := callers.New(callers.Options{Trust: trust, Blocklist: list, Table: table, Proxies: identity.Proxies{Local: true}})
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			var running sync.WaitGroup
			running.Go(func() { trust.Run(ctx) })
			running.Go(func() { who.Run(ctx) })
			t.Cleanup(func() { cancel(); running.Wait() })

			connection := callers.WithConnection(t.Context(), sidecar{})
			_, bound, end, err := who.Bind(proxied(connection, forwarded(stolen, "hash", "uri")))
			require.NoError(t, err)
			defer end()
			_, beside, end, err := who.Bind(proxied(connection, forwarded(other, "hash", "uri")))
			require.NoError(t, err)
			defer end()
			list.set(key)
			select {
			case <-bound.Context().Done():
			case <-time.After(2 * time.Minute):
				require.FailNow(t, "the request goes on")
			}
			require.ErrorContains(t, callers.CertificateError(bound.Context()), "is blocked")
			_, _, _, err = who.Bind(proxied(connection, forwarded(stolen, "hash", "uri")))
			require.ErrorContains(t, err, "is blocked")
			require.NoError(t, beside.Context().Err(), "another's request over the same connection")
		})
	}
}
