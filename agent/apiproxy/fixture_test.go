package apiproxy_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/apiproxy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPolicy allows requests by their namespace, and reads the body of what is created in namespace read.
type testPolicy struct {
	mu      sync.Mutex
	closed  string        // a namespace that is not allowed any more. Guarded by mu
	changed chan struct{} // guarded by mu
}

func (p *testPolicy) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// forbid allows nothing in a namespace any more, but what it did before in others.
func (p *testPolicy) forbid(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = namespace
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *testPolicy) Decide(ctx context.Context, q *policy.Request) (policy.Decision, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	switch {
	case q.Namespace == closed && closed != "":
		return policy.Decision{Reason: "it is closed now"}, nil
	case ctx.Err() != nil:
		return policy.Decision{}, ctx.Err()
	case q.Namespace == "unknown":
		return policy.Decision{}, errors.New("redis is away")
	case q.Impersonates && q.Namespace == "anybody":
		return policy.Decision{Allowed: true, Impersonates: true}, nil
	case q.Impersonates && q.Namespace != "recorded":
		return policy.Decision{Reason: "nobody may act as another"}, nil
	case q.Namespace == "bad":
		return policy.Decision{Reason: "it is bad"}, nil
	case q.Namespace == "read":
		if _, err := q.Body(); err != nil {
			return policy.Decision{}, err
		}
	}
	return policy.Decision{Allowed: true, Application: "guestbook"}, nil
}

// spoke is a handler before an API server.
type spoke struct {
	url      string // of the handler
	client   *http.Client
	registry *prometheus.Registry
	log      *lines
	policy   *testPolicy
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

// last returns the last line.
func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return ""
	}
	return l.all[len(l.all)-1]
}

// count returns how many lines have a text.
func (l *lines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// newSpoke starts an API server, which speaks HTTP/2 or HTTP/1.1 only, and a handler before it.
func newSpoke(tb testing.TB, http2 bool, api http.HandlerFunc) *spoke {
	tb.Helper()
	server := httptest.NewUnstartedServer(api)
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	tb.Cleanup(server.Close)
	return before(tb, &rest.Config{Host: server.URL, BearerToken: "agents-own", TLSClientConfig: rest.TLSClientConfig{CAData: caOf(server)}})
}

func caOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// before starts a handler before an API server that is there already, or is not.
func before(tb testing.TB, config *rest.Config) *spoke {
	tb.Helper()
	s := &spoke{registry: prometheus.NewRegistry(), log: &lines{}, policy: &testPolicy{changed: make(chan struct{})}}
	handler, err := apiproxy.New(apiproxy.Options{
		Config: config, Policy: s.policy, Registerer: s.registry,
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(tb, err)
	server := httptest.NewServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	transport := &http.Transport{DisableCompression: true}
	s.url, s.client = server.URL, &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	tb.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		handler.Close()
	})
	return s
}

// ask makes a request, with headers as name, value, name, value.
func (s *spoke) ask(tb testing.TB, method, target string, body io.Reader, header ...string) (head, string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, s.url+target, body)
	require.NoError(tb, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	answer, err := s.client.Do(r)
	require.NoError(tb, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(tb, err)
	return head{answer.StatusCode, answer.Header}, string(text)
}

// head is how an answer begins.
type head struct {
	code   int
	header http.Header
}

// status reads an answer that is an API server's status.
func status(tb testing.TB, answer head, text string) metav1.Status {
	tb.Helper()
	var s metav1.Status
	require.NoError(tb, json.Unmarshal([]byte(text), &s), text)
	require.Equal(tb, "Status", s.Kind)
	require.Equal(tb, "application/json", answer.header.Get("Content-Type"))
	require.Equal(tb, answer.code, int(s.Code))
	require.Equal(tb, metav1.StatusFailure, s.Status)
	return s
}

const pod = "/api/v1/namespaces/good/pods/p"

func join(s ...string) string { return strings.Join(s, " ") }
