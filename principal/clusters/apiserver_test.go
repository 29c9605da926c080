package clusters_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const namespace = "argocd"

// apiServer has the Secrets of one namespace, and lists and watches those that a label selector selects. A watch sees a Secret
// that is no longer selected as deleted, as with a real API server.
type apiServer struct {
	client typed.CoreV1Interface

	mu         sync.Mutex // guards the fields below
	denied     bool
	revision   int
	secrets    map[string]*corev1.Secret
	log        []event
	wake       chan struct{} // closed and replaced when something happens
	endWatches chan struct{} // closed and replaced to end all watches
}

// event is one change of a Secret.
type event struct {
	revision int
	old, now *corev1.Secret // nil: there is none
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{revision: 10, secrets: make(map[string]*corev1.Secret), wake: make(chan struct{}), endWatches: make(chan struct{})}
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := typed.NewForConfigAndClient(config, &http.Client{Transport: transport})
	require.NoError(t, err)
	s.client = client
	t.Cleanup(func() {
		s.interrupt(func() {})
		server.Close()
		transport.CloseIdleConnections()
	})
	return s
}

// put writes a Secret with labels: those of a cluster's, if an agent is given.
func (s *apiServer) put(name, agent, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"server": []byte(server), "config": []byte(`{"bearerToken":"secret"}`)},
	}
	if agent != "" {
		secret.Labels = map[string]string{
			"argocd-agent.argoproj-labs.io/agent-name": agent, "argocd.argoproj.io/secret-type": "cluster",
		}
	}
	s.record(name, secret)
}

// putOther puts the Secret of a cluster, called by a name in Argo CD, that is no agent's, or the agent's.
func (s *apiServer) putOther(name, cluster, agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		Data:       map[string][]byte{"name": []byte(cluster), "server": []byte("https://" + cluster)},
	}
	if agent != "" {
		secret.Labels["argocd-agent.argoproj-labs.io/agent-name"] = agent
	}
	s.record(name, secret)
}

func (s *apiServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(name, nil)
}

// record changes a Secret. s.mu is held.
func (s *apiServer) record(name string, now *corev1.Secret) {
	s.revision++
	old := s.secrets[name]
	if delete(s.secrets, name); now != nil {
		now.ResourceVersion = strconv.Itoa(s.revision)
		s.secrets[name] = now
	}
	s.log = append(s.log, event{s.revision, old, now})
	close(s.wake)
	s.wake = make(chan struct{})
}

// deny says whether all requests are refused from now on.
func (s *apiServer) deny(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = yes
}

// interrupt ends all watches. None will show what changes meanwhile.
func (s *apiServer) interrupt(meanwhile func()) {
	s.mu.Lock()
	s.denied = true
	close(s.endWatches)
	s.endWatches = make(chan struct{})
	s.mu.Unlock()
	meanwhile()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied, s.log = false, nil
}

// ServeHTTP answers a list or a watch.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	s.mu.Lock()
	denied := s.denied
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case err != nil || denied || r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/"+namespace+"/secrets":
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "secrets is forbidden")
	case query.Has("sendInitialEvents"): // as API servers do before 1.34
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case query.Has("watch"):
		s.watch(w, r, selector)
	default:
		s.list(w, selector)
	}
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func (s *apiServer) list(w http.ResponseWriter, selector labels.Selector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := corev1.SecretList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)},
	}
	for _, secret := range s.secrets {
		if selector.Matches(labels.Set(secret.Labels)) {
			list.Items = append(list.Items, *secret)
		}
	}
	_ = json.NewEncoder(w).Encode(list) // to a client that has hung up, if it does not work
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, selector labels.Selector) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	endWatches, expired := s.endWatches, since < s.revision-len(s.log)
	s.mu.Unlock()
	if expired {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	w.WriteHeader(http.StatusOK)
	for {
		s.mu.Lock()
		wake, pending, over := s.wake, s.log, s.endWatches != endWatches
		s.mu.Unlock()
		if over {
			return
		}
		for _, e := range pending {
			if e.revision > since {
				since = e.revision
				e.send(w, selector)
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-wake:
		case <-endWatches:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// send sends an event to a watch.
func (e event) send(w http.ResponseWriter, selector labels.Selector) {
	selects := func(secret *corev1.Secret) bool { return secret != nil && selector.Matches(labels.Set(secret.Labels)) }
	kind, object := watch.Modified, e.now
	switch {
	case selects(e.now) && !selects(e.old):
		kind = watch.Added
	case selects(e.old) && !selects(e.now):
		kind, object = watch.Deleted, e.old.DeepCopy()
		object.ResourceVersion = strconv.Itoa(e.revision)
	case !selects(e.now):
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
}
