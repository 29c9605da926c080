// Package secretstest has an API server for tests: one that has Secrets, with the protocol of a real one.
package secretstest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
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

// Namespace is that of all Secrets.
const Namespace = "argocd"

// Server has the Secrets of one namespace. It creates, gets and updates them, and lists and watches those that a label selector, or their
// name, selects. A watch sees a Secret that is no longer selected as deleted, as with a real API server. An update has to be of the
// newest version.
type Server struct {
	Client typed.CoreV1Interface // of the server

	mu         sync.Mutex // guards the fields below
	denied     bool
	writes     int
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

// New returns a server that serves until the test is over.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{revision: 10, secrets: make(map[string]*corev1.Secret), wake: make(chan struct{}), endWatches: make(chan struct{})}
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := typed.NewForConfigAndClient(config, &http.Client{Transport: transport})
	require.NoError(t, err)
	s.Client = client
	t.Cleanup(func() {
		s.Interrupt(func() {})
		server.Close()
		transport.CloseIdleConnections()
	})
	return s
}

// Put writes a Secret with labels: those of a cluster's, if an agent is given.
func (s *Server) Put(name, agent, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Data:       map[string][]byte{"server": []byte(server), "config": []byte(`{"bearerToken":"secret"}`)},
	}
	if agent != "" {
		secret.Labels = map[string]string{
			"argocd-agent.argoproj-labs.io/agent-name": agent, "argocd.argoproj.io/secret-type": "cluster",
		}
	}
	s.record(name, secret)
}

// PutOther puts the Secret of a cluster, called by a name in Argo CD, that is no agent's, or the agent's.
func (s *Server) PutOther(name, cluster, agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		Data:       map[string][]byte{"name": []byte(cluster), "server": []byte("https://" + cluster)},
	}
	if agent != "" {
		secret.Labels["argocd-agent.argoproj-labs.io/agent-name"] = agent
	}
	s.record(name, secret)
}

// Remove removes a Secret.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(name, nil)
}

// record changes a Secret. s.mu is held.
func (s *Server) record(name string, now *corev1.Secret) {
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

// Deny says whether all requests are refused from now on.
func (s *Server) Deny(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = yes
}

// Interrupt ends all watches. None will show what changes meanwhile.
func (s *Server) Interrupt(meanwhile func()) {
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

// Writes returns how many creations and updates there have been.
func (s *Server) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Get returns a Secret, nil if there is none.
func (s *Server) Get(name string) *corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets[name].DeepCopy()
}

// Set makes this the Secret of its name.
func (s *Server) Set(secret *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret = secret.DeepCopy()
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	secret.Namespace = Namespace
	s.record(secret.Name, secret)
}

// selector is what a list or a watch is of.
type selector struct {
	labels labels.Selector
	name   string // empty for any
}

func (q selector) matches(secret *corev1.Secret) bool {
	return secret != nil && q.labels.Matches(labels.Set(secret.Labels)) && (q.name == "" || q.name == secret.Name)
}

const path = "/api/v1/namespaces/" + Namespace + "/secrets"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	selects := selector{name: strings.TrimPrefix(query.Get("fieldSelector"), "metadata.name=")}
	var err error
	selects.labels, err = labels.Parse(query.Get("labelSelector"))
	s.mu.Lock()
	denied := s.denied
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	name, one := strings.CutPrefix(r.URL.Path, path+"/")
	switch {
	case err != nil || denied || !one && r.URL.Path != path:
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "secrets is forbidden")
	case r.Method != http.MethodGet:
		s.write(w, r)
	case one:
		s.get(w, name)
	case query.Has("sendInitialEvents"): // as API servers do before 1.34
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case query.Has("watch"):
		s.watch(w, r, selects)
	default:
		s.list(w, selects)
	}
}

// get answers with one Secret.
func (s *Server) get(w http.ResponseWriter, name string) {
	if found := s.Get(name); found != nil {
		_ = json.NewEncoder(w).Encode(found)
		return
	}
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
}

// write creates or updates a Secret.
func (s *Server) write(w http.ResponseWriter, r *http.Request) {
	var secret corev1.Secret
	if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.secrets[secret.Name]
	switch {
	case r.Method == http.MethodPost && found != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, "already exists")
		return
	case r.Method == http.MethodPut && (found == nil || found.ResourceVersion != secret.ResourceVersion):
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	s.writes++
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	s.record(secret.Name, &secret)
	_ = json.NewEncoder(w).Encode(secret)
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func (s *Server) list(w http.ResponseWriter, selects selector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := corev1.SecretList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)},
	}
	for _, secret := range s.secrets {
		if selects.matches(secret) {
			list.Items = append(list.Items, *secret)
		}
	}
	_ = json.NewEncoder(w).Encode(list) // to a client that has hung up, if it does not work
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, selects selector) {
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
				e.send(w, selects)
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
func (e event) send(w http.ResponseWriter, selects selector) {
	kind, object := watch.Modified, e.now
	switch {
	case selects.matches(e.now) && !selects.matches(e.old):
		kind = watch.Added
	case selects.matches(e.old) && !selects.matches(e.now):
		kind, object = watch.Deleted, e.old.DeepCopy()
		object.ResourceVersion = strconv.Itoa(e.revision)
	case !selects.matches(e.now):
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
}
