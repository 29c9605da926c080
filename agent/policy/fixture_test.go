package policy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "argocd"

// configMap returns the policy's, with a text.
func configMap(revision, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: policy.ConfigMap, UID: "1", ResourceVersion: revision},
		Data:       map[string]string{policy.Key: text},
	}
}

// apiServer serves the policy's ConfigMap, and the objects that a test gives it.
type apiServer struct {
	client  typed.CoreV1Interface
	first   *corev1.ConfigMap // nil if there is none
	denied  bool
	changes chan change
	objects map[string]string // JSON of others by path
}

type change struct {
	kind   watch.EventType
	object *corev1.ConfigMap
}

func newAPIServer(tb testing.TB, first *corev1.ConfigMap) *apiServer {
	tb.Helper()
	s := &apiServer{first: first, changes: make(chan change)}
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	client, err := typed.NewForConfigAndClient(
		&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		&http.Client{Transport: transport})
	require.NoError(tb, err)
	s.client = client
	tb.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if object, ok := s.objects[r.URL.Path]; ok {
		_, _ = io.WriteString(w, object)
		return
	}
	encoder, query := json.NewEncoder(w), r.URL.Query()
	if s.denied || query.Get("fieldSelector") != "metadata.name="+policy.ConfigMap || r.URL.Path != "/api/v1/namespaces/"+namespace+"/configmaps" {
		w.WriteHeader(http.StatusForbidden)
		_ = encoder.Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
			Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "configmaps is forbidden",
		})
		return
	}
	send := func(kind watch.EventType, object any) {
		_ = encoder.Encode(map[string]any{"type": kind, "object": object})
		w.(http.Flusher).Flush()
	}
	if query.Has("sendInitialEvents") {
		if s.first != nil {
			send(watch.Added, s.first)
		}
		mark := configMap("9", "")
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send(watch.Bookmark, mark)
	}
	for {
		select {
		case c := <-s.changes:
			send(c.kind, c.object)
		case <-r.Context().Done():
			return
		}
	}
}

// following is a policy that follows its ConfigMap, and what it logs.
type following struct {
	policy   *policy.Policy
	registry *prometheus.Registry
	lines    chan string
}

// follows runs a policy, and waits until it knows its ConfigMap.
func follows(tb testing.TB, server *apiServer, known applications) *following {
	tb.Helper()
	f := newFollowing(tb, server, known)
	if server.first != nil {
		<-f.lines
	}
	require.Eventually(tb, func() bool { return f.policy.Ready() == nil }, waitFor, tick)
	return f
}

func newFollowing(tb testing.TB, server *apiServer, known applications) *following {
	tb.Helper()
	read, write := io.Pipe()
	f := &following{registry: prometheus.NewRegistry(), lines: make(chan string, 100)}
	f.policy = policy.New(policy.Options{
		Client: server.client.RESTClient(), Namespace: namespace, Applications: known, Registerer: f.registry,
		Logger: slog.New(slog.NewTextHandler(write, nil)),
	})
	ctx, cancel := context.WithCancel(tb.Context())
	ended, drained := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.policy.Run(ctx)
	}()
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			f.lines <- lines.Text()
		}
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
		_ = write.Close()
		<-drained
	})
	return f
}

// fails says whether an error is one of the request's own, with that code.
func fails(err error, code int) bool {
	var own *apihttp.Error
	return errors.As(err, &own) && own.Code == code
}
