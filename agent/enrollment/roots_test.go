package enrollment_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/enrollment"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

const (
	rootsSecret = "argocd-agent-ca"
	principalID = "spiffe://hub.test/principal"
)

// svid returns a server's certificate that has the principal's SPIFFE ID.
func svid(t *testing.T, ca *pki.CA) tls.Certificate {
	t.Helper()
	issuer, err := ca.PEM().TLS()
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, URIs: []*url.URL{{Scheme: "spiffe", Host: "hub.test", Path: "/principal"}},
	}, issuer.Leaf, key.Public(), issuer.PrivateKey)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// secured is an agent that knows the principal by its SPIFFE ID, and a CA that is in a Secret beside something else. The principal answers with
// roots.
func secured(t *testing.T, kept *pki.Pair, ca *pki.CA, key string, roots []byte) *spoke {
	t.Helper()
	s := newSpoke(t, kept)
	s.roots = roots
	s.served = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{svid(t, ca)}, MinVersion: tls.VersionTLS13})
	require.NoError(t, s.secrets.Tracker().Add(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rootsSecret, ResourceVersion: "1"},
		Data:       map[string][]byte{key: ca.PEM().Certificate, "ours": []byte("stays")},
	}))
	trusted, err := certs.New(certs.Options{Name: "roots", Roots: certs.Fixed("the CA", certs.Blocks{CAs: ca.PEM().Certificate}), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s.change = func(o *enrollment.Options) {
		o.Roots, o.RootsSecret, o.ServerID = trusted, rootsSecret, spiffeid.RequireFromString(principalID)
		o.Trusting = certs.ClientCredentials(certs.ClientOptions{Source: trusted, ServerID: o.ServerID})
		o.Proving = o.Trusting
	}
	return s
}

// trusts is what the Secret of the trusted CAs has.
func (s *spoke) trusts() map[string][]byte {
	s.t.Helper()
	found, err := s.secrets.CoreV1().Secrets(namespace).Get(context.Background(), rootsSecret, metav1.GetOptions{})
	require.NoError(s.t, err)
	return found.Data
}

// writes is how often that Secret was written.
func (s *spoke) writes() (count int) {
	for _, a := range s.secrets.Actions() {
		if patch, ok := a.(clienttesting.PatchAction); ok && patch.GetName() == rootsSecret {
			count++
		}
	}
	return count
}

// issues answers with certificates of an hour.
func issues(t *testing.T, ca *pki.CA) func(request) ([]byte, error) {
	t.Helper()
	return func(a request) ([]byte, error) { return signed(t, ca, a, lasting(time.Hour)), nil }
}

// A CA that is about to replace the principal's comes with a certificate, before the principal's certificate is by it.
func TestRootsFollowThePrincipal(t *testing.T) {
	for _, key := range []string{"ca.crt", "tls.crt"} {
		t.Run(key, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca, next := newCA(t), newCA(t)
				both := append(append([]byte{}, ca.PEM().Certificate...), next.PEM().Certificate...)
				s := secured(t, nil, ca, key, both)
				stop := s.start(true, issues(t, ca))
				message, _ := s.next()
				require.Equal(t, "Trusted CAs replaced by those of the principal", message)
				message, _ = s.next()
				require.Equal(t, "Certificate issued by the principal", message)
				<-time.After(3 * time.Hour)
				stop()
				require.Equal(t, map[string][]byte{key: both, "ours": []byte("stays")}, s.trusts())
				require.Equal(t, 1, s.writes(), "the same ones are not written again")
			})
		})
	}
}

// CAs that do not vouch for the principal itself are not taken, and its certificates are good all the same. It is said once.
func TestPrincipalThatLiesOfItsRoots(t *testing.T) {
	leaf := func(t *testing.T, ca *pki.CA) []byte {
		t.Helper()
		pair, err := ca.IssueClient(pki.ClientOptions{CommonName: "berlin"})
		require.NoError(t, err)
		return pair.Certificate
	}
	for name, c := range map[string]struct {
		roots  func(t *testing.T, ca *pki.CA) []byte
		change func(s *spoke, o *enrollment.Options)
		want   string // empty if they are no business of the principal's
	}{
		"another CA": {roots: func(t *testing.T, _ *pki.CA) []byte { t.Helper(); return newCA(t).PEM().Certificate }, want: "none of the CAs trusted here"},
		"no CA":      {roots: func(t *testing.T, ca *pki.CA) []byte { t.Helper(); return leaf(t, ca) }, want: "is not one of a CA"},
		"no CA beside the CA": {roots: func(t *testing.T, ca *pki.CA) []byte {
			t.Helper()
			return append(append([]byte{}, ca.PEM().Certificate...), leaf(t, ca)...)
		}, want: "is not one of a CA"},
		"junk": {roots: func(*testing.T, *pki.CA) []byte { return []byte("junk") }, want: "no certificate in PEM form"},
		"without TLS": {change: func(s *spoke, o *enrollment.Options) {
			s.served, o.Trusting, o.Proving = insecure.NewCredentials(), insecure.NewCredentials(), insecure.NewCredentials()
		}, want: "it has CAs, and came without TLS"},
		"another SPIFFE ID": {change: func(_ *spoke, o *enrollment.Options) {
			o.ServerID = spiffeid.RequireFromString("spiffe://hub.test/other")
		},
			want: "spiffe://hub.test/other was wanted"},
		"to an agent that knows it by its host":       {change: func(_ *spoke, o *enrollment.Options) { o.ServerID = spiffeid.ID{} }},
		"to an agent that has its CAs from elsewhere": {change: func(_ *spoke, o *enrollment.Options) { o.RootsSecret = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca := newCA(t)
				kept, err := ca.IssueClient(pki.ClientOptions{CommonName: "berlin", Validity: lasting(time.Hour)})
				require.NoError(t, err)
				roots := append(append([]byte{}, ca.PEM().Certificate...), newCA(t).PEM().Certificate...)
				if c.roots != nil {
					roots = c.roots(t, ca)
				}
				s := secured(t, &kept, ca, "ca.crt", roots)
				if c.change != nil {
					usual := s.change
					s.change = func(o *enrollment.Options) { usual(o); c.change(s, o) }
					s.change(new(enrollment.Options)) // the server's part
				}
				stop := s.start(false, issues(t, ca))
				if c.want != "" {
					message, problem := s.next()
					require.Equal(t, "The principal's CAs not taken; keeping those in the Secret", message)
					require.Contains(t, problem, c.want)
				}
				for range 3 {
					message, _ := s.next()
					require.Equal(t, "Certificate issued by the principal", message)
				}
				stop()
				require.Equal(t, string(ca.PEM().Certificate), string(s.trusts()["ca.crt"]))
			})
		})
	}
}

// An agent that may not write the Secret of its CAs gets certificates all the same, and says what it needs. While the API server does not answer,
// it asks again.
func TestRootsThatCannotBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		failed string
		want   string
		taken  bool
	}{
		"not allowed": {
			err:    apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, rootsSecret, errors.New("no")),
			failed: "The principal's CAs not taken; keeping those in the Secret", want: "let the agent get and patch that Secret",
		},
		"no answer": {
			err:    errors.New("connection refused"),
			failed: "Failed to get a certificate of the principal; retrying", want: "write the principal's CAs to Secret argocd-agent-ca: connection refused", taken: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca, next := newCA(t), newCA(t)
				both := append(append([]byte{}, ca.PEM().Certificate...), next.PEM().Certificate...)
				s := secured(t, nil, ca, "ca.crt", both)
				refused := false
				s.secrets.PrependReactor("patch", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
					if a.(clienttesting.PatchAction).GetName() != rootsSecret || refused {
						return false, nil, nil
					}
					refused = true
					return true, nil, c.err
				})
				stop := s.start(true, issues(t, ca))
				message, problem := s.next()
				require.Equal(t, c.failed, message)
				require.Contains(t, problem, c.want)
				if c.taken {
					message, _ = s.next()
					require.Equal(t, "Trusted CAs replaced by those of the principal", message)
				}
				message, _ = s.next()
				require.Equal(t, "Certificate issued by the principal", message)
				stop()
				require.Equal(t, c.taken, string(both) == string(s.trusts()["ca.crt"]))
			})
		})
	}
}
