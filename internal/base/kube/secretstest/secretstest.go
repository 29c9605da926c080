// Package secretstest has an API server for tests: one that has Secrets, with the protocol of a real one.
package secretstest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Namespace is that of all Secrets.
const Namespace = "argocd"

// Options are how a Server is, if not as New has it.
type Options struct {
	// Streaming has it answer lists by watch, as API servers do since 1.34. Else it refuses that, as older ones do.
	Streaming bool
	// Allowed are the names of the Secrets that may be listed and watched, each by itself, as RBAC with resourceNames has it.
	Allowed []string
}

// Server has the Secrets of one namespace. It creates, gets and updates them, and lists and watches those that a label selector, or their
// name, selects. A watch sees a Secret that is no longer selected as deleted, as with a real API server. An update has to be of the
// newest version. It is reached in memory, so it may be in a bubble of testing/synctest.
type Server struct {
	Client typed.CoreV1Interface // of the server
	// Refused gets a value for each request that was not allowed, as long as it is read.
	Refused chan struct{}

	streaming bool

	mu         sync.Mutex      // guards the fields below
	allowed    map[string]bool // nil for all
	denied     bool
	writes     int
	revision   int
	oldest     int // what happened up to this revision is forgotten
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

// New returns a server that serves everything until the test is over.
func New(t *testing.T) *Server {
	t.Helper()
	return serve(t, &Server{})
}

// NewWith returns a server that serves what the options allow until the test is over.
func NewWith(t *testing.T, o Options) *Server {
	t.Helper()
	s := &Server{streaming: o.Streaming, allowed: make(map[string]bool)}
	for _, name := range o.Allowed {
		s.allowed[name] = true
	}
	return serve(t, s)
}

// buffer is how many bytes a connection holds that nobody has read.
const buffer = 1 << 20

func serve(t *testing.T, s *Server) *Server {
	t.Helper()
	s.revision, s.secrets, s.Refused = 10, make(map[string]*corev1.Secret), make(chan struct{}, 1000)
	s.wake, s.endWatches = make(chan struct{}), make(chan struct{})
	listener := bufconn.Listen(buffer)
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}
	config := &rest.Config{Host: "http://secrets.test", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := typed.NewForConfigAndClient(config, &http.Client{Transport: transport})
	require.NoError(t, err)
	s.Client = client
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		s.CutWatches()
		require.NoError(t, server.Close())
		transport.CloseIdleConnections()
		serving.Wait()
	})
	return s
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

// Allow says whether one Secret may be listed and watched from now on.
func (s *Server) Allow(name string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed[name] = yes
}

// CutWatches ends all watches.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.endWatches)
	s.endWatches = make(chan struct{})
}

// Forget makes the revisions of all that has happened too old for a watch to go on from.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.oldest, s.log = s.revision, nil
}

// Interrupt ends all watches. None will show what changes meanwhile.
func (s *Server) Interrupt(meanwhile func()) {
	s.Deny(true)
	s.CutWatches()
	meanwhile()
	s.Forget()
	s.Deny(false)
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
	w.Header().Set("Content-Type", "application/json")
	name, one := strings.CutPrefix(r.URL.Path, path+"/")
	switch {
	case err != nil || !one && r.URL.Path != path || !s.permits(r, selects.name):
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "secrets is forbidden")
		select {
		case s.Refused <- struct{}{}:
		default:
		}
	case r.Method != http.MethodGet:
		s.write(w, r)
	case one:
		s.get(w, name)
	case query.Has("sendInitialEvents") && !s.streaming:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case query.Has("watch"):
		s.watch(w, r, selects)
	default:
		s.list(w, selects)
	}
}

// permits reports whether a request is allowed that is of a Secret, or of any if the name is empty.
func (s *Server) permits(r *http.Request, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.denied && (s.allowed == nil || r.Method == http.MethodGet && s.allowed[name])
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
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	s.mu.Lock()
	endWatches, expired := s.endWatches, !initial && since < s.oldest
	s.mu.Unlock()
	if expired {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	w.WriteHeader(http.StatusOK)
	if initial {
		since = s.sendInitial(w, selects)
	}
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

// sendInitial sends what a list would have, and the bookmark that ends it, and returns the revision of that.
func (s *Server) sendInitial(w http.ResponseWriter, selects selector) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.secrets {
		event{s.revision, nil, secret}.send(w, selects)
	}
	sendTo(w, watch.Bookmark, &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(s.revision), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	})
	return s.revision
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
	sendTo(w, kind, object)
}

// sendTo sends to a client that may have hung up.
func sendTo(w http.ResponseWriter, kind watch.EventType, object *corev1.Secret) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
}
