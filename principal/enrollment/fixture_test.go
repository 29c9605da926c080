package enrollment_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/identitytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/enrollment"
)

const (
	hubNamespace = "argocd"
	component    = "argocd-agent-kubeproxy"
)

// signs is a Signer.
type signs func(ctx context.Context, agent identity.Agent, request pki.Request) ([]byte, error)

// Sign implements enrollment.Signer.
func (s signs) Sign(ctx context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
	return s(ctx, agent, request)
}

// office is a Service with what it needs. Its Secrets are client-go's fake: how the real API server treats those who use a token at the same
// time is for the end-to-end tests.
type office struct {
	*enrollment.Service

	t        *testing.T
	hub      *fake.Clientset
	ca       *pki.CA
	trust    *identitytest.Trust
	blocked  map[identity.Agent]error
	registry *prometheus.Registry
	log      *logtest.Log
}

// newOffice returns a Service with a signer: that of its own CA if it is nil.
func newOffice(t *testing.T, signer enrollment.Signer) *office {
	t.Helper()
	return newOfficeOf(t, signer, identity.Options{Auth: identity.DefaultAuth, Components: identity.Components{component: {"kube"}}})
}

// newOfficeOf is newOffice where agents are named otherwise.
func newOfficeOf(t *testing.T, signer enrollment.Signer, names identity.Options) *office {
	t.Helper()
	o := &office{t: t, hub: fake.NewClientset(), trust: &identitytest.Trust{}, blocked: make(map[identity.Agent]error), registry: prometheus.NewRegistry(), log: &logtest.Log{}}
	var err error
	o.ca, err = pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	if signer == nil {
		signer = signs(func(_ context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
			return o.ca.SignClient(pki.ClientOptions{CommonName: string(agent)}, request.Key)
		})
	}
	identify, err := identity.New(names)
	require.NoError(t, err)
	logger := slog.New(slog.NewTextHandler(o.log, nil))
	o.Service = enrollment.New(enrollment.Options{
		Signer: signer, Tokens: enrollment.Tokens{Client: o.hub.CoreV1(), Namespace: hubNamespace},
		Authn:    authn.New(authn.Options{Identify: identify, Trust: o.trust, Logger: logger}),
		Identify: identify, Trust: o.trust, Refuses: func(agent identity.Agent) error { return o.blocked[agent] }, Ready: func(context.Context) error { return nil }, Registerer: o.registry, Logger: logger,
	})
	return o
}

// token has the hub know a new token of an agent, for an hour.
func (o *office) token(agent identity.Agent) string {
	o.t.Helper()
	token := enrolltoken.New(agent)
	entry, err := enrolltoken.NewEntry(token, time.Now().Add(time.Hour)).Encode()
	require.NoError(o.t, err)
	o.keeps(map[string][]byte{string(agent): entry})
	return token.Text()
}

// keeps has the Secret of the tokens be that.
func (o *office) keeps(data map[string][]byte) {
	o.t.Helper()
	_ = o.hub.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), hubNamespace, enrolltoken.SecretName) // of before, if there is one
	require.NoError(o.t, o.hub.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: enrolltoken.SecretName}, Data: data}))
}

// enroll asks for a certificate from an address.
func (o *office) enroll(address, token string, csr []byte) (*enrollv1.IssueResponse, error) {
	ctx := peer.NewContext(o.t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 40000}})
	return o.Enroll(ctx, &enrollv1.EnrollRequest{Token: token, Csr: csr})
}

// renew asks for a certificate by one of that name.
func (o *office) renew(name string, csr []byte) (*enrollv1.IssueResponse, error) {
	o.t.Helper()
	pair, err := o.ca.IssueClient(pki.ClientOptions{CommonName: name})
	require.NoError(o.t, err)
	certificate, err := pair.TLS()
	require.NoError(o.t, err)
	return o.Renew(peer.NewContext(o.t.Context(), &peer.Peer{
		Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{
			PeerCertificates: []*x509.Certificate{certificate.Leaf}, VerifiedChains: [][]*x509.Certificate{{certificate.Leaf}},
		}},
	}), &enrollv1.RenewRequest{Csr: csr})
}

// counts requires what was counted of requests.
func (o *office) counts(by, result string, want int) {
	o.t.Helper()
	families, err := o.registry.Gather()
	require.NoError(o.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == by && m.GetLabel()[1].GetValue() == result {
				require.EqualValues(o.t, want, m.GetCounter().GetValue(), "%s %s", by, result)
				return
			}
		}
	}
	require.FailNow(o.t, "nothing counts that")
}

func csrOf(t *testing.T, name string) []byte {
	t.Helper()
	csr, _, err := pki.NewRequest(pki.KeyKind{}, name)
	require.NoError(t, err)
	return csr
}

// unavailable is what callers are told of what is not their business.
const unavailable = "the principal cannot issue certificates now: its log says why"
