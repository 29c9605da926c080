package follow_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const namespace = "argocd"

// apiServer speaks as much of the Kubernetes API as it takes to write, list and watch ConfigMaps of one namespace. All that
// it knows is a log of what happened; lists and watches show the log up to where a test lets them.
type apiServer struct {
	client typed.ConfigMapInterface
	// streaming makes it answer lists by watch, as API servers do since 1.34; else it refuses these as older ones do.
	streaming bool
	// watched gets the revision that each watch starts from that is no list.
	watched chan string
	// listed gets the verb of each list that was answered: watch if it was streamed.
	listed chan string
	// refused gets the verb of each list and watch that was not allowed.
	refused chan string

	mu       sync.Mutex // guards the fields below
	log      []event
	revision int
	heldAt   int  // how much of the log lists and watches show, while it is held
	held     bool // nothing more is shown
	oldest   int  // watches cannot start before this revision
	denied   bool
	restored bool          // revisions went back
	wake     chan struct{} // closed and replaced when there is more to show
	watches  *watchGroup   // the watches that run
}

// event is an entry of the log.
type event struct {
	revision  int
	kind      watch.EventType
	object    *corev1.ConfigMap
	watchOnly bool // only watches show it; nothing happened
}

// watchGroup is the watches that end together.
type watchGroup struct {
	ended  chan struct{}
	end    func(send func(watch.EventType, any)) // how, once they do
	before []event                               // what of the log they show before
}

func newAPIServer(t *testing.T, streaming bool) *apiServer {
	t.Helper()
	s := &apiServer{
		streaming: streaming,
		watched:   make(chan string, 1000),
		listed:    make(chan string, 1000),
		refused:   make(chan string, 1000),
		revision:  10,
		wake:      make(chan struct{}),
		watches:   &watchGroup{ended: make(chan struct{})},
	}
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := typed.NewForConfigAndClient(config, &http.Client{Transport: transport})
	require.NoError(t, err)
	s.client = client.ConfigMaps(namespace)
	t.Cleanup(func() {
		s.dropWatches()
		server.Close()
		transport.CloseIdleConnections()
	})
	return s
}

// create creates an object through the API, in a group if one is given.
func (s *apiServer) create(t *testing.T, name, value string, group ...string) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	for _, g := range group {
		object.Labels = map[string]string{"group": g}
	}
	answer, err := s.client.Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer
}

// update replaces an object through the API.
func (s *apiServer) update(t *testing.T, name, value string, group ...string) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	for _, g := range group {
		object.Labels = map[string]string{"group": g}
	}
	answer, err := s.client.Update(t.Context(), object, metav1.UpdateOptions{})
	require.NoError(t, err)
	return answer
}

// remove deletes an object through the API.
func (s *apiServer) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, s.client.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// holdBack has lists and watches show nothing that happens from now on, as an API server does that lags behind.
func (s *apiServer) holdBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.heldAt = true, len(s.log)
}

// release ends holdBack.
func (s *apiServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.wakeWatches()
}

// bookmark tells watches that there is nothing up to a revision that other kinds of objects have come to, and returns it.
func (s *apiServer) bookmark() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision += 10
	s.log = append(s.log, event{s.revision, watch.Bookmark, mark(s.revision, nil), true})
	s.wakeWatches()
	return strconv.Itoa(s.revision)
}

// sendEvent sends an event to watches, although nothing changed.
func (s *apiServer) sendEvent(kind watch.EventType, object *corev1.ConfigMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, event{0, kind, object, true})
	s.wakeWatches()
}

// deny has lists and watches refused, or allows them again.
func (s *apiServer) deny(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = yes
}

// dropWatches drops the connections of all watches in the middle of their answers.
func (s *apiServer) dropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches(dropped)
}

func dropped(func(watch.EventType, any)) { panic(http.ErrAbortHandler) }

// expire forgets the log, so that watches must start from a new list, and ends them: they get the error in their stream, or
// when they try to go on. What was held is shown by lists from then on.
func (s *apiServer) expire(inStream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches(tooOld(inStream))
	s.held, s.oldest = false, s.revision
}

// expireHeld has the watches end as too old, while lists go on to show nothing of what is held.
func (s *apiServer) expireHeld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches(tooOld(true))
}

// restore makes the server as it was after so many events, and ends the watches. These get the error 410 Gone, or are only
// dropped: then they may go on from a revision that is yet to come.
func (s *apiServer) restore(events int, end func(func(watch.EventType, any))) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatches(end)
	s.log = slices.Clone(s.log[:events])
	s.revision = s.revisionShown()
	s.restored = true
}

func tooOld(inStream bool) func(func(watch.EventType, any)) {
	return func(send func(watch.EventType, any)) {
		if inStream {
			send(watch.Error, status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"))
		}
	}
}

// endWatches ends all watches, once they have shown what is visible. s.mu is held.
func (s *apiServer) endWatches(end func(func(watch.EventType, any))) {
	s.watches.end, s.watches.before = end, s.visible()
	close(s.watches.ended)
	s.watches = &watchGroup{ended: make(chan struct{})}
}

// wakeWatches wakes watches. s.mu is held.
func (s *apiServer) wakeWatches() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// visible returns what lists and watches show of the log. s.mu is held.
func (s *apiServer) visible() []event {
	if s.held {
		return s.log[:s.heldAt]
	}
	return s.log
}

// revisionShown is how far visible comes. s.mu is held.
func (s *apiServer) revisionShown() int {
	revision := 10
	for _, e := range s.visible() {
		revision = max(revision, e.revision)
	}
	return revision
}

// objects returns what there is after the events.
func objects(log []event) map[string]*corev1.ConfigMap {
	all := make(map[string]*corev1.ConfigMap)
	for _, e := range log {
		switch {
		case e.watchOnly:
		case e.kind == watch.Deleted:
			delete(all, e.object.Name)
		default:
			all[e.object.Name] = e.object
		}
	}
	return all
}

// sorted returns what there is, by name.
func (s *apiServer) sorted() []*corev1.ConfigMap {
	return slices.SortedFunc(maps.Values(objects(s.visible())), func(a, b *corev1.ConfigMap) int { return cmp.Compare(a.Name, b.Name) })
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.mu.Lock()
	denied := s.denied
	s.mu.Unlock()
	switch {
	case !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"+namespace+"/configmaps"):
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such path: "+r.URL.Path)
	case r.Method != http.MethodGet:
		s.write(w, r)
	case denied:
		verb := map[bool]string{true: "watch", false: "list"}[query.Has("watch")]
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "configmaps is forbidden: cannot "+verb)
		s.refused <- verb
	case !query.Has("watch"):
		s.list(w, query)
	case query.Has("sendInitialEvents") && !s.streaming:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	default:
		s.watch(w, r)
	}
}

// write answers a creation, an update or a deletion.
func (s *apiServer) write(w http.ResponseWriter, r *http.Request) {
	object, options := &corev1.ConfigMap{}, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}
	body := any(object)
	if r.Method == http.MethodDelete {
		body, object.Name = &options, path.Base(r.URL.Path)
	}
	if err := json.NewDecoder(r.Body).Decode(body); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	name := object.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	old := objects(s.log)[name]
	if create := r.Method == http.MethodPost; create && old != nil {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, name+" already exists")
		return
	} else if !create && old == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, name+" not found")
		return
	} else if uid := options.Preconditions.UID; uid != nil && *uid != old.UID {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, name+" is another")
		return
	}
	s.revision++
	kind := watch.Modified
	switch r.Method {
	case http.MethodPost:
		kind = watch.Added
		object.UID = types.UID(fmt.Sprint("uid-", s.revision))
	case http.MethodPut:
		object.UID = old.UID
	case http.MethodDelete:
		kind, object = watch.Deleted, old.DeepCopy()
	}
	object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	object.Namespace, object.ResourceVersion = namespace, strconv.Itoa(s.revision)
	s.log = append(s.log, event{s.revision, kind, object, false})
	s.wakeWatches()
	answer(w, http.StatusOK, object)
}

// list answers a list, or only how far it comes, which is not counted. It has the newest only: a list of what was once is what an
// API server may have forgotten, or not have come to yet.
func (s *apiServer) list(w http.ResponseWriter, query url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision := query.Get("resourceVersion"); revision != "" {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "there is nothing of revision "+revision)
		return
	}
	list := corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revisionShown())},
	}
	if query.Get("limit") != "1" {
		s.listed <- "list"
		for _, object := range s.sorted() {
			list.Items = append(list.Items, *object)
		}
	}
	answer(w, http.StatusOK, list)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	send := func(kind watch.EventType, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	}
	s.mu.Lock()
	watches, initial := s.watches, r.URL.Query().Has("sendInitialEvents")
	next := slices.IndexFunc(s.log, func(e event) bool { return !e.watchOnly && e.revision > since })
	switch {
	case initial:
		s.listed <- "watch"
		for _, object := range s.sorted() {
			send(watch.Added, object)
		}
		send(watch.Bookmark, mark(s.revisionShown(), map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		next = len(s.visible())
	case since < s.oldest:
		s.mu.Unlock()
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	case next < 0:
		next = len(s.visible())
	}
	s.mu.Unlock()
	w.(http.Flusher).Flush()
	if !initial {
		s.watched <- r.URL.Query().Get("resourceVersion")
	}
	for {
		s.mu.Lock()
		wake, end := s.wake, watches.end
		pending := s.visible()
		if end != nil {
			pending = watches.before
		}
		s.mu.Unlock()
		for ; next < len(pending); next++ {
			if e := pending[next]; e.watchOnly || initial || e.revision > since {
				send(e.kind, e.object)
			}
		}
		w.(http.Flusher).Flush()
		if end != nil {
			end(send)
			return
		}
		select {
		case <-wake:
		case <-watches.ended:
		case <-r.Context().Done():
			return
		}
	}
}

// mark returns the object of a bookmark.
func mark(revision int, annotations map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(revision), Annotations: annotations},
	}
}

func status(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, status(code, reason, message))
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
