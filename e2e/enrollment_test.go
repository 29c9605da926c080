package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// issuing is a principal that issues certificates, by a copy of the lab's CA that it may read.
type issuing struct {
	*lab.Principal
	enrollment int         // port
	trust      *tls.Config // of those who enroll
	roots      []byte      // by which they know it, as PEM
}

// newIssuing starts a principal that signs by a copy of the lab's CA.
func newIssuing(t *testing.T, args ...string) issuing {
	t.Helper()
	place := unique("signer")
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(place)))
	_, err := shared.Hub.Kubernetes.CoreV1().Secrets(place).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-ca"},
		Data:       map[string][]byte{"tls.crt": shared.CA.PEM().Certificate, "tls.key": shared.CA.PEM().Key},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return newIssuingBy(t, "principal-signer-rbac.yaml", place, append([]string{"--signer=ca-secret"}, args...)...)
}

// newIssuingBy starts a principal whose signer works in a namespace, with the rights in a manifest.
func newIssuingBy(t *testing.T, manifest, place string, args ...string) issuing {
	t.Helper()
	grants(t, manifest, place)
	grants(t, "principal-enrollment-rbac.yaml", place)
	free, err := shared.Host.Port()
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(shared.CA.Certificate())
	return issuing{newPrincipal(t, lab.PrincipalOptions{Args: append([]string{
		"--signer-ca-namespace=" + place, "--enrollment-port=" + strconv.Itoa(free),
	}, args...)}), free, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, shared.CA.PEM().Certificate}
}

// grants gives the principal the rights in a manifest, those of a signer in that namespace.
func grants(t *testing.T, manifest, place string) {
	t.Helper()
	rights, err := os.ReadFile(filepath.Join("lab", "manifests", manifest))
	require.NoError(t, err)
	rights = bytes.ReplaceAll(rights, []byte("namespace: argocd-agent-ca}"), []byte("namespace: "+place+"}"))
	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), rights, place))
}

// enrollmentToken makes an enrollment token of an agent, as an administrator does.
func enrollmentToken(t *testing.T, agent string) string {
	t.Helper()
	text, err := shared.Agentctl(t.Context(), "agent", "token", "create", agent)
	require.NoError(t, err)
	return strings.TrimSpace(text)
}

// enrolls asks for a certificate as an agent does that has none.
func (p issuing) enrolls(t *testing.T, token string, csr []byte) (*x509.Certificate, error) {
	t.Helper()
	conn, err := grpc.NewClient(port.Address(p.enrollment), grpc.WithTransportCredentials(credentials.NewTLS(p.trust)))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	answer, err := enrollv1.NewEnrollmentClient(conn).Enroll(ctx, &enrollv1.EnrollRequest{Token: token, Csr: csr})
	if err != nil {
		return nil, err
	}
	issued, err := certs.ParseCertificates(answer.GetCertificate())
	require.NoError(t, err)
	return issued[0], nil
}

func newCSR(t *testing.T, name string) []byte {
	t.Helper()
	csr, _, err := pki.NewRequest(pki.KeyKind{}, name)
	require.NoError(t, err)
	return csr
}

// joins makes a site whose agent has an enrollment token and the CA's certificate, and nothing else, and waits until it is connected.
func (p issuing) joins(t *testing.T, name string, args ...string) *site {
	t.Helper()
	require.NoError(t, shared.Spoke("b").Apply(t.Context(), namespace(name)))
	_, err := shared.Spoke("b").Kubernetes.CoreV1().Secrets(name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-ca"}, Data: map[string][]byte{"ca.crt": p.roots},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return startSite(t, name, lab.AgentOptions{
		Principal: p.Principal, Certificates: &lab.Certificates{},
		Args: append([]string{"--enrollment-token=" + enrollmentToken(t, name), "--enrollment-port=" + strconv.Itoa(p.enrollment)}, args...),
	}).connected(t)
}

// renews waits until the agent of a site has another certificate than its first, with another key.
func (s *site) renews(t *testing.T, first *corev1.Secret) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, s.agent.WaitLog(ctx, "Certificate renewed; reconnecting"))
	require.NotEqual(t, first.Data["tls.key"], secretOf(t, s.spoke, s.name, "argocd-agent-client-tls").Data["tls.key"], "each certificate has a key of its own")
}

// A spoke needs no key from anybody: a token, once. All later certificates the agent gets by itself, and nothing is interrupted.
func TestAgentEnrollsAndRenews(t *testing.T) {
	t.Parallel()
	name := unique("enrolled")
	principal := newIssuing(t, "--certificate-lifetime=30s")
	s := principal.joins(t, name)
	s.newTwin("first").create(t).arrives(t)
	first := secretOf(t, s.spoke, name, "argocd-agent-client-tls")
	require.Equal(t, corev1.SecretTypeTLS, first.Type)
	require.NotContains(t, first.Data, "enrollment.key", "of an enrollment that is under way")
	s.renews(t, first)
	says(t, principal, "Issued certificate")
	s.newTwin("second").create(t).arrives(t)

	// Who is blocked gets no more, and its last certificate ends.
	mark := s.agent.Mark()
	blocks(t, principal, name)
	saysNow(t, s.agent, mark, "Failed to get a certificate of the principal; retrying")
	log, err := s.agent.LogFrom(mark)
	require.NoError(t, err)
	require.Regexp(t, `Failed to get a certificate of the principal; retrying.* by=certificate .*agent `+name+` is blocked`, string(log))
	last := secretOf(t, s.spoke, name, "argocd-agent-client-tls")
	saysSlowly(t, s.agent, mark, "it expired at")
	require.Equal(t, last, secretOf(t, s.spoke, name, "argocd-agent-client-tls"))
}

// blocks shuts an agent out for the rest of the test, and waits until a principal knows.
func blocks(t *testing.T, p issuing, agent string) {
	t.Helper()
	mark := p.Mark()
	agentctl(t, "agent", "block", agent)
	t.Cleanup(func() { _, _ = shared.Agentctl(context.WithoutCancel(t.Context()), "agent", "unblock", agent) })
	p.readsBlocklist(t, mark)
}

// readsBlocklist waits until a principal has read the blocklist as it is now.
func (p issuing) readsBlocklist(t *testing.T, mark int64) {
	t.Helper()
	list, err := shared.Hub.Kubernetes.CoreV1().ConfigMaps(lab.Namespace).Get(t.Context(), "argocd-agent-tls-blocklist", metav1.GetOptions{})
	require.NoError(t, err)
	saysNow(t, p, mark, "resource_version="+list.ResourceVersion)
}

// Whoever has no certificate may lie about all that it sends.
func TestTokensThatGetNoCertificate(t *testing.T) {
	t.Parallel()
	principal := newIssuing(t)
	name := unique("joins")
	good, csr := enrollmentToken(t, name), newCSR(t, name)
	stranger := enrolltoken.New(identity.Agent(name)).Text() // of another hub
	for want, send := range map[string]struct {
		token string
		csr   []byte
	}{
		"is not known":              {stranger, csr},
		"the enrollment token is n": {"other" + good[strings.Index(good, "."):], newCSR(t, "other")},
		"no enrollment token":       {"", csr},
		"certificate request: asn1": {good, []byte("junk")},
		`has to be "CN=` + name:     {good, newCSR(t, "another")},
	} {
		_, err := principal.enrolls(t, send.token, send.csr)
		require.ErrorContains(t, err, want)
	}

	issued, err := principal.enrolls(t, good, csr)
	require.NoError(t, err, "what others tried has not used it")
	require.Equal(t, "CN="+name, issued.Subject.String())
	require.WithinDuration(t, time.Now().Add(24*time.Hour), issued.NotAfter, time.Minute)
	_, err = principal.enrolls(t, good, csr)
	require.NoError(t, err, "the answer may have been lost")
	_, err = principal.enrolls(t, good, newCSR(t, name))
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "was used for another key already")
	says(t, principal, "Refused certificate")

	blocks(t, principal, name)
	good = enrollmentToken(t, name)
	_, err = principal.enrolls(t, good, csr)
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "is blocked")
	mark := principal.Mark()
	agentctl(t, "agent", "unblock", name)
	principal.readsBlocklist(t, mark)
	_, err = principal.enrolls(t, good, newCSR(t, name))
	require.NoError(t, err, "a refusal has not used it")
}

// Of all who use a token at once, one gets a certificate.
func TestTokenIsUsedOnceInParallel(t *testing.T) {
	t.Parallel()
	first, second := newIssuing(t), newIssuing(t)
	name := unique("parallel")
	text := enrollmentToken(t, name)
	var issued, refused atomic.Int32
	var all errgroup.Group
	for i := range 12 {
		csr, principal := newCSR(t, name), []issuing{first, second}[i%2]
		all.Go(func() error {
			_, err := principal.enrolls(t, text, csr)
			switch status.Code(err) {
			case codes.OK:
				issued.Add(1)
			case codes.Unauthenticated, codes.Unavailable: // the last if too many wrote at the same time
				refused.Add(1)
			default:
				return err
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	require.EqualValues(t, 1, issued.Load())
	require.EqualValues(t, 11, refused.Load())
}

// The port for those without a certificate serves nothing but enrollment, and a principal without a signer has neither.
func TestEnrollmentPortServesNothingElse(t *testing.T) {
	t.Parallel()
	principal := newIssuing(t)
	conn, err := grpc.NewClient(port.Address(principal.enrollment), grpc.WithTransportCredentials(credentials.NewTLS(principal.trust)))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	stream, err := syncv1.NewSyncClient(conn).Connect(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
	_, err = enrollv1.NewRenewalClient(conn).Renew(ctx, &enrollv1.RenewRequest{Csr: newCSR(t, "nobody")})
	require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
}
