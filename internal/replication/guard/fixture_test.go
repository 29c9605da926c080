package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "argocd"

// apiServer takes Events, and serves one watch, of the guard's ConfigMap and no other.
type apiServer struct {
	client   typed.CoreV1Interface
	first    *corev1.ConfigMap // what there is when the watch begins, nil if nothing
	changes  chan change       // what the watch brings then
	revision atomic.Int64      // of the last change
	events   chan *corev1.Event
	denied   bool                   // Events are refused
	held     chan map[string]string // what HeldConfigMap shows after each write

	mu       sync.Mutex
	shown    *corev1.ConfigMap        // HeldConfigMap, nil if there is none. Guarded by mu
	watchers map[chan change]struct{} // of HeldConfigMap. Guarded by mu
}

type change struct {
	kind   watch.EventType
	object *corev1.ConfigMap
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{
		changes: make(chan change), events: make(chan *corev1.Event, 100), held: make(chan map[string]string, 100), watchers: make(map[chan change]struct{}),
	}
	s.revision.Store(10)
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := typed.NewForConfigAndClient(config, &http.Client{Transport: transport})
	require.NoError(t, err)
	s.client = client
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return s
}

// configMap returns the guard's ConfigMap at a new revision.
func (s *apiServer) configMap(tokens ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: guard.ConfigMap, UID: "1", ResourceVersion: strconv.FormatInt(s.revision.Add(1), 10)},
		Data:       map[string]string{},
	}
	for n, token := range tokens {
		m.Data["key-"+strconv.Itoa(n)] = token
	}
	return m
}

// change has the watch bring the ConfigMap with these tokens.
func (s *apiServer) change(t *testing.T, kind watch.EventType, tokens ...string) {
	t.Helper()
	select {
	case s.changes <- change{kind, s.configMap(tokens...)}:
	case <-time.After(timeout):
		require.FailNow(t, "nobody watches")
	}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	encode := json.NewEncoder(w).Encode
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/"+namespace+"/events":
		event := &corev1.Event{}
		if json.NewDecoder(r.Body).Decode(event) != nil || s.denied {
			w.WriteHeader(http.StatusForbidden)
		}
		_ = encode(event)
		s.events <- event
	case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/namespaces/"+namespace+"/configmaps/"+guard.HeldConfigMap:
		s.patchShown(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/"+namespace+"/configmaps":
		s.createShown(w, r)
	case query.Get("fieldSelector") == "metadata.name="+guard.HeldConfigMap:
		s.watchShown(w, r)
	case r.URL.Path != "/api/v1/namespaces/"+namespace+"/configmaps", !query.Has("sendInitialEvents"),
		query.Get("fieldSelector") != "metadata.name="+guard.ConfigMap:
		w.WriteHeader(http.StatusForbidden)
	default:
		send := func(kind watch.EventType, object *corev1.ConfigMap) {
			_ = encode(map[string]any{"type": kind, "object": object})
			w.(http.Flusher).Flush()
		}
		end := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		end.ResourceVersion = "10"
		if s.first != nil {
			send(watch.Added, s.first)
			end.ResourceVersion = s.first.ResourceVersion
		}
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send(watch.Bookmark, end)
		for {
			select {
			case c := <-s.changes:
				send(c.kind, c.object)
			case <-r.Context().Done():
				return
			}
		}
	}
}

// timeout is how long a test waits for what must come.
const timeout = 2 * time.Minute

// fixture is a controller that runs.
type fixture struct {
	*apiServer
	controller *guard.Controller
	confirmed  chan string // agent, facet and token of each confirmation
	lines      chan string // of the log
	passed     chan string // what the observers pass on
	away       atomic.Bool // no agent is connected
}

// runs runs the controller of a program that is the only one, and has all agents, until the test ends.
func runs(t *testing.T, server *apiServer) *fixture {
	t.Helper()
	return runsAs(t, server, guard.Shared{
		Elsewhere: func(string) bool { return false }, Known: func(string) bool { return true }, Wait: func(context.Context) bool { return true },
	})
}

// runsAs runs the controller of one program of several.
func runsAs(t *testing.T, server *apiServer, shared guard.Shared) *fixture {
	t.Helper()
	read, write := io.Pipe()
	r := &fixture{
		apiServer: server, confirmed: make(chan string, 100), lines: make(chan string, 100), passed: make(chan string, 100),
	}
	r.controller = guard.New(guard.Options{
		Client: server.client, Namespace: namespace, Component: "principal", Shared: &shared, Logger: slog.New(slog.NewTextHandler(write, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended, drained := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			r.lines <- lines.Text()
		}
	}()
	go func() {
		defer close(ended)
		r.controller.Run(ctx, func(agent string, f converge.Facet, token string) bool {
			r.confirmed <- agent + " " + string(f) + " " + token
			if r.away.Load() {
				return false
			}
			r.observer(agent).DeletionsResumed(f) // as a peer does whose deletions resume
			return true
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		write.Close()
		<-drained
	})
	return r
}

// observer returns an agent's observer.
func (r *fixture) observer(agent string) converge.Observer {
	return r.controller.Observer(agent, next{passed: r.passed})
}

// next is the observer that the controller's passes everything on to.
type next struct {
	converge.Observer
	passed chan string
}

func (n next) Compared(f converge.Facet)                  { n.passed <- "compared " + string(f) }
func (n next) DeletionsPaused(b converge.PausedDeletions) { n.passed <- "paused " + b.Token }
func (n next) DeletionsResumed(f converge.Facet)          { n.passed <- "resumed " + string(f) }

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(timeout):
		require.FailNow(t, "nothing came")
	}
	panic("not reached")
}
