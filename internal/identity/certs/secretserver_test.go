package certs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const namespace = "argocd"

// apiServer speaks as much of the Kubernetes API as it takes to list and watch Secrets of one namespace. Like RBAC with
// resourceNames it refuses requests that are not limited to one of the allowed names.
type apiServer struct {
	client typed.SecretsGetter
	// streaming makes it answer lists by watch, as API servers do since 1.34; else it refuses these as older ones do.
	streaming bool
	// refused gets a value for each request that was not allowed.
	refused chan struct{}

	mu      sync.Mutex // guards the fields below
	allowed map[string]bool
	version int
	objects map[string]*corev1.Secret
	history []event
	oldest  int           // events up to this version are forgotten
	changed chan struct{} // closed and replaced when something happens
	cut     chan struct{} // closed and replaced to end all watches
}

type event struct {
	version int
	kind    watch.EventType
	object  *corev1.Secret
}

func newAPIServer(t *testing.T, streaming bool, allowed ...string) *apiServer {
	t.Helper()
	s := &apiServer{
		streaming: streaming,
		refused:   make(chan struct{}, 1000),
		allowed:   map[string]bool{},
		version:   10,
		objects:   map[string]*corev1.Secret{},
		changed:   make(chan struct{}),
		cut:       make(chan struct{}),
	}
	for _, name := range allowed {
		s.allowed[name] = true
	}
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	client, err := typed.NewForConfigAndClient(&rest.Config{Host: server.URL, QPS: -1}, &http.Client{Transport: transport})
	require.NoError(t, err)
	s.client = client
	t.Cleanup(func() {
		s.cutWatches()
		server.Close()
		transport.CloseIdleConnections()
	})
	return s
}

func (s *apiServer) put(name string, data map[string][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := watch.Added
	if s.objects[name] != nil {
		kind = watch.Modified
	}
	s.version++
	s.objects[name] = &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: strconv.Itoa(s.version)},
		Data:       data,
	}
	s.record(kind, s.objects[name])
}

func (s *apiServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	gone := s.objects[name].DeepCopy()
	gone.ResourceVersion = strconv.Itoa(s.version)
	delete(s.objects, name)
	s.record(watch.Deleted, gone)
}

// record keeps an event for watches. s.mu is held.
func (s *apiServer) record(kind watch.EventType, object *corev1.Secret) {
	s.history = append(s.history, event{version: s.version, kind: kind, object: object})
	close(s.changed)
	s.changed = make(chan struct{})
}

// allow changes whether requests for the name are answered.
func (s *apiServer) allow(name string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed[name] = yes
}

// cutWatches ends all watches; forget also makes their resource versions too old to go on from.
func (s *apiServer) cutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

func (s *apiServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.history = s.version, nil
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/"+namespace+"/secrets" || r.Method != http.MethodGet {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such path: "+r.Method+" "+r.URL.Path)
		return
	}
	query := r.URL.Query()
	name, named := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	s.mu.Lock()
	permitted := named && s.allowed[name]
	s.mu.Unlock()
	switch {
	case !permitted:
		verb := map[bool]string{true: "watch", false: "list"}[query.Has("watch")]
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("secrets %q is forbidden: cannot %s", name, verb))
		s.refused <- struct{}{}
	case query.Get("watch") == "":
		s.list(w, name)
	case query.Get("sendInitialEvents") != "" && !s.streaming:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	default:
		s.watch(w, r, name)
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *apiServer) list(w http.ResponseWriter, name string) {
	s.mu.Lock()
	list := corev1.SecretList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)},
	}
	if found := s.objects[name]; found != nil {
		list.Items = append(list.Items, *found)
	}
	s.mu.Unlock()
	answer(w, http.StatusOK, list)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, name string) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	s.mu.Lock()
	cut, expired := s.cut, !initial && since < s.oldest
	s.mu.Unlock()
	if expired {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(kind watch.EventType, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	}
	if initial {
		since = s.sendInitial(send, name)
	}
	for {
		s.mu.Lock()
		changed, pending := s.changed, s.history
		s.mu.Unlock()
		for _, next := range pending {
			if next.version > since && next.object.Name == name {
				send(next.kind, next.object)
			}
			since = max(since, next.version)
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// sendInitial streams what a list would hold, and the bookmark that ends it.
func (s *apiServer) sendInitial(send func(watch.EventType, any), name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.objects[name]; found != nil {
		send(watch.Added, found)
	}
	send(watch.Bookmark, &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(s.version),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	})
	return s.version
}
