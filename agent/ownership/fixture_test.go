package ownership_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "argocd"

// store is a real Redis.
type store struct {
	*redis.Client
	socket  string
	process *exec.Cmd
	ended   chan struct{}
	gets    atomic.Int64 // trees that were read through the client
}

func newStore(tb testing.TB) *store {
	tb.Helper()
	s := &store{socket: filepath.Join(tb.TempDir(), "redis")}
	s.start(tb)
	tb.Cleanup(func() { s.stop(tb) })
	s.Client = redis.NewClient(&redis.Options{Network: "unix", Addr: s.socket, MaxRetries: -1, DialerRetries: 1})
	s.AddHook(counting{&s.gets})
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// start starts Redis, and waits until it says that it is ready.
func (s *store) start(tb testing.TB) {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	require.NoError(tb, err, "install redis-server: these tests need a real one")
	s.process = exec.Command(path, "--port", "0", "--unixsocket", s.socket, "--save", "", "--dir", filepath.Dir(s.socket))
	out, err := s.process.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, s.process.Start())
	ready := make(chan struct{})
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
	case <-s.ended:
		tb.Fatal("redis-server ended")
	}
}

func (s *store) stop(tb testing.TB) {
	tb.Helper()
	if s.process != nil {
		require.NoError(tb, s.process.Process.Kill())
		<-s.ended
		_ = s.process.Wait()
		s.process = nil
	}
}

// counting counts the trees that are asked for.
type counting struct{ gets *atomic.Int64 }

func (c counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		for _, command := range commands {
			if command.Name() == "get" {
				c.gets.Add(1)
			}
		}
		return next(ctx, commands)
	}
}

// ref is a reference as Argo CD writes it: group/kind/namespace/name/uid.
func ref(text string) map[string]any {
	parts := strings.Split(text, "/")
	return map[string]any{"group": parts[0], "version": "v1", "kind": parts[1], "namespace": parts[2], "name": parts[3], "uid": parts[4]}
}

// node is a node of a tree, below others.
func node(text string, parents ...string) map[string]any {
	n := ref(text)
	n["health"], n["info"] = map[string]any{"status": "Healthy"}, []any{map[string]any{"name": "Revision", "value": "Rev:1"}}
	var above []any
	for _, p := range parents {
		above = append(above, ref(p))
	}
	n["parentRefs"] = above
	return n
}

func tree(nodes ...map[string]any) map[string]any {
	return map[string]any{
		"nodes": nodes, "hosts": []any{map[string]any{"name": "n1"}},
		"orphanedNodes": []any{node("/Pod/a/orphan/orphan-uid")},
	}
}

func zip(tb testing.TB, value any) []byte {
	tb.Helper()
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	require.NoError(tb, json.NewEncoder(w).Encode(value))
	require.NoError(tb, w.Close())
	return buffer.Bytes()
}

// write writes the tree of an application as the controller does, and publishes the notification.
func (s *store) write(tb testing.TB, application string, value any) {
	tb.Helper()
	s.put(tb, application, value)
	s.notify(tb, application)
}

func (s *store) put(tb testing.TB, application string, value any) {
	tb.Helper()
	key := "app|resources-tree|" + application + "|1.8.3.gz"
	if value == nil {
		require.NoError(tb, s.Del(tb.Context(), key).Err())
		return
	}
	require.NoError(tb, s.Set(tb.Context(), key, zip(tb, value), 0).Err())
}

func (s *store) notify(tb testing.TB, application string) {
	tb.Helper()
	require.NoError(tb, s.Publish(tb.Context(), "app|managed-resources|"+application+"|1.8.3", "").Err())
}

// apiServer has a few kinds and, of each, the objects that a test puts there.
type apiServer struct {
	config *rest.Config
	asked  atomic.Int64 // for objects
	listed atomic.Int64 // discovery

	mu       sync.Mutex
	objects  map[string]metav1.ObjectMeta // by path. Guarded by mu
	settings map[string]string            // of argocd-cm. Guarded by mu
	fails    bool                         // guarded by mu
}

func newAPIServer(tb testing.TB) *apiServer {
	tb.Helper()
	s := &apiServer{objects: make(map[string]metav1.ObjectMeta)}
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	s.config = &rest.Config{Host: server.URL, QPS: -1, Transport: transport}
	tb.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return s
}

func (s *apiServer) put(path string, meta metav1.ObjectMeta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(path, "/")
	meta.Name = parts[len(parts)-1]
	if _, rest, ok := strings.Cut(path, "/namespaces/"); ok {
		meta.Namespace, _, _ = strings.Cut(rest, "/")
	}
	s.objects[path] = meta
}

// discovery is what kinds there are.
func discovery() map[string]any {
	return map[string]any{
		"/api":  metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group("apps"), group("rbac.authorization.k8s.io")}},
		"/api/v1": resources("v1", metav1.APIResource{Name: "pods", Kind: "Pod", Namespaced: true}, metav1.APIResource{Name: "pods/log", Kind: "Pod", Namespaced: true},
			metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, metav1.APIResource{Name: "namespaces", Kind: "Namespace"}),
		"/apis/apps/v1": resources("apps/v1", metav1.APIResource{Name: "deployments", Kind: "Deployment", Namespaced: true},
			metav1.APIResource{Name: "replicasets", Kind: "ReplicaSet", Namespaced: true}),
		"/apis/rbac.authorization.k8s.io/v1": resources("rbac.authorization.k8s.io/v1", metav1.APIResource{Name: "clusterroles", Kind: "ClusterRole"}),
	}
}

func group(name string) metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
	return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
}

func resources(version string, list ...metav1.APIResource) metav1.APIResourceList {
	return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: list}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	settings, fails := s.settings, s.fails
	meta, found := s.objects[r.URL.Path]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	if fails {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if answer, ok := discovery()[r.URL.Path]; ok {
		if r.URL.Path == "/api" {
			s.listed.Add(1)
		}
		_ = encoder.Encode(answer)
		return
	}
	if r.URL.Path == "/api/v1/namespaces/"+namespace+"/configmaps" {
		s.watchSettings(w, r, settings)
		return
	}
	s.asked.Add(1)
	if !found {
		w.WriteHeader(http.StatusNotFound)
		_ = encoder.Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: "NotFound", Code: 404})
		return
	}
	_ = encoder.Encode(metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: meta,
	})
}

func (s *apiServer) watchSettings(w http.ResponseWriter, r *http.Request, settings map[string]string) {
	encoder := json.NewEncoder(w)
	if r.URL.Query().Has("sendInitialEvents") {
		object := func(data any, annotations map[string]any) any {
			return map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "data": data, "metadata": map[string]any{
				"name": "argocd-cm", "namespace": namespace, "resourceVersion": "9", "annotations": annotations, "uid": "cm",
			}}
		}
		_ = encoder.Encode(map[string]any{"type": "ADDED", "object": object(settings, nil)})
		_ = encoder.Encode(map[string]any{"type": "BOOKMARK", "object": object(nil, map[string]any{metav1.InitialEventsAnnotationKey: "true"})})
		w.(http.Flusher).Flush()
	}
	<-r.Context().Done()
}

// newIndex returns an Index that does not run.
func newIndex(tb testing.TB, s *store, api *apiServer, change ...func(*ownership.Options)) *ownership.Index {
	tb.Helper()
	client, err := kubernetes.NewForConfig(api.config)
	require.NoError(tb, err)
	o := ownership.Options{
		Redis: s.Client, Config: api.config, ConfigMaps: client.CoreV1().RESTClient(), Namespace: namespace,
		Shared: func(name string) bool { return name != "deleted" }, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	index, err := ownership.New(o)
	require.NoError(tb, err)
	return index
}

// runs runs an Index, and waits until it is subscribed.
func runs(tb testing.TB, index *ownership.Index) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		index.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
	})
	require.Eventually(tb, index.Listening, waitFor, tick)
}

// object reads what is looked for, as group/resource/namespace/name.
func object(text string) ownership.Object {
	parts := strings.Split(text, "/")
	return ownership.Object{Group: parts[0], Resource: parts[1], Namespace: parts[2], Name: parts[3]}
}

func guestbook(pods int) map[string]any {
	nodes := []map[string]any{
		node("apps/Deployment/a/web/web-uid"), node("apps/ReplicaSet/a/web-1/web-1-uid", "apps/Deployment/a/web/web-uid"),
		node("rbac.authorization.k8s.io/ClusterRole//web/role-uid"),
	}
	for i := range pods {
		nodes = append(nodes, node(fmt.Sprintf("/Pod/a/web-1-%d/pod-%d-uid", i, i), "apps/ReplicaSet/a/web-1/web-1-uid"))
	}
	return tree(nodes...)
}
