package enrollment_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/enrollment"
	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

const namespace, secretName = "argocd", "argocd-agent-client-tls"

// request is a request that a principal got: its token, empty for a renewal, and the request for a certificate.
type request struct {
	token string
	csr   []byte
}

// key is the public key that the request is for.
func (r request) key(t *testing.T) []byte {
	t.Helper()
	parsed, err := pki.ParseRequest(r.csr)
	require.NoError(t, err)
	raw, err := parsed.Key.Raw()
	require.NoError(t, err)
	return raw
}

// principal answers requests for certificates as it likes.
type principal struct {
	enrollv1.UnimplementedEnrollmentServer
	enrollv1.UnimplementedRenewalServer

	mu     sync.Mutex // held while it answers
	answer func(request) ([]byte, error)
	roots  []byte
}

// Enroll implements enrollv1.EnrollmentServer.
func (p *principal) Enroll(_ context.Context, r *enrollv1.EnrollRequest) (*enrollv1.IssueResponse, error) {
	return p.respond(request{r.GetToken(), r.GetCsr()})
}

// Renew implements enrollv1.RenewalServer.
func (p *principal) Renew(_ context.Context, r *enrollv1.RenewRequest) (*enrollv1.IssueResponse, error) {
	return p.respond(request{"", r.GetCsr()})
}

func (p *principal) respond(a request) (*enrollv1.IssueResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	certificate, err := p.answer(a)
	if err != nil {
		return nil, err
	}
	return &enrollv1.IssueResponse{Certificate: certificate, Roots: p.roots}, nil
}

// following is the origin of a certificate that follows what is written.
type following chan certs.Blocks

// String implements certs.Origin.
func (following) String() string { return "the Secret" }

// Watch implements certs.Origin.
func (f following) Watch(ctx context.Context, report func(certs.Blocks, error)) error {
	for {
		select {
		case b := <-f:
			report(b, nil)
		case <-ctx.Done():
			return nil
		}
	}
}

// spoke is an agent that gets its certificates of a principal, and the Secret that it keeps them in. That is client-go's fake.
type spoke struct {
	t       *testing.T
	token   enrolltoken.Token
	secrets *fake.Clientset
	logged  chan slog.Record
	pair    following
	change  func(*enrollment.Options) // of the agent, if it is not nil
	served  credentials.TransportCredentials
	roots   []byte // that the principal answers
}

// handler sends what is logged to a channel.
type handler struct{ to chan slog.Record }

func (handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h handler) WithGroup(string) slog.Handler          { return h }
func (h handler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.to <- r:
		return nil
	default:
		return errors.New("the log is full")
	}
}

// start runs an agent that enrolls, unless token is false, until the function that it returns is called.
func start(t *testing.T, token bool, kept *pki.Pair, answer func(request) ([]byte, error)) (s *spoke, stop func()) {
	t.Helper()
	s = newSpoke(t, kept)
	return s, s.start(token, answer)
}

// newSpoke returns one that does not run yet.
func newSpoke(t *testing.T, kept *pki.Pair) *spoke {
	t.Helper()
	s := &spoke{
		t: t, token: enrolltoken.New("berlin"), secrets: fake.NewClientset(), logged: make(chan slog.Record, 1000), pair: make(following, 100),
		served: insecure.NewCredentials(),
	}
	if kept != nil {
		s.keeps(*kept)
	}
	s.follow()
	return s
}

// start runs an agent until the function that it returns is called. The connection to the principal is in memory, for time to be the test's.
func (s *spoke) start(token bool, answer func(request) ([]byte, error)) (stop func()) {
	t := s.t
	t.Helper()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(s.served))
	p := &principal{answer: answer, roots: s.roots}
	enrollv1.RegisterEnrollmentServer(server, p)
	enrollv1.RegisterRenewalServer(server, p)
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	logger := slog.New(handler{s.logged})
	roots, err := certs.New(certs.Options{Name: "roots", Roots: certs.Fixed("the CA", certs.Blocks{CAs: ca.PEM().Certificate}), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	pair, err := certs.New(certs.Options{Name: "pair", Pair: s.pair, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	options := enrollment.Options{
		Enroll: "passthrough:principal", Renew: "passthrough:principal", Trusting: insecure.NewCredentials(), Proving: insecure.NewCredentials(),
		Roots: roots, Pair: pair, Secrets: s.secrets.CoreV1().Secrets(namespace), SecretName: secretName,
		Dial:       []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })},
		Registerer: prometheus.NewRegistry(), Logger: logger,
	}
	if token {
		options.Token = &s.token
	}
	if s.change != nil {
		s.change(&options)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { _ = pair.Run(ctx) })
	running.Go(func() { _ = enrollment.New(options).Run(ctx) })
	return func() {
		cancel()
		server.Stop()
		running.Wait()
	}
}

// keeps has the Secret be there with that.
func (s *spoke) keeps(pair pki.Pair) {
	s.t.Helper()
	require.NoError(s.t, s.secrets.Tracker().Add(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key, "ours": []byte("stays")},
	}))
	s.pair <- certs.Blocks{Certificate: pair.Certificate, Key: pair.Key}
}

// next returns the next line of the log, and its attribute "error".
func (s *spoke) next() (message, problem string) {
	s.t.Helper()
	record := <-s.logged
	return record.Message, attribute(record, "error")
}

// attribute returns an attribute of a line, empty if it has none of that name.
func attribute(record slog.Record, name string) (value string) {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == name {
			value = a.Value.String()
		}
		return true
	})
	return value
}

// secret returns what is kept, nil if nothing is.
func (s *spoke) secret() map[string][]byte {
	found, err := s.secrets.CoreV1().Secrets(namespace).Get(s.t.Context(), secretName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return found.Data
}
