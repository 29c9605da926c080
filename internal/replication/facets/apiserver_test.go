package facets_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// apiServer is an API server that has objects of the kinds that are shared and nothing else. It treats revisions,
// preconditions, finalizers and immutable fields of Secrets as a real one does.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex // guards all below
	revision int
	objects  map[string]*stored // by their paths
	writes   []string           // what was asked for and done, in order
	denial   *metav1.Status
	quotes   bool // it denies what is written, and quotes that
	// instead, if set, may answer a request in the API server's place, and reports whether it did. It is called without mu.
	instead func(w http.ResponseWriter, r *http.Request) bool
	// admit, if set, is an admission webhook, which makes of an object what is stored.
	admit func(text []byte) []byte
}

// stored is an object as it is stored.
type stored struct {
	metav1.PartialObjectMetadata

	text []byte // all of it, in JSON
}

// pathOf returns where an API server has an object.
func pathOf(kind, namespace, name string) string {
	prefix := "/apis/argoproj.io/v1alpha1"
	if kind == "Secret" || kind == "ConfigMap" {
		prefix = "/api/v1"
	}
	return path.Join(prefix, "namespaces", namespace, strings.ToLower(kind)+"s", name)
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{objects: make(map[string]*stored)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// put stores an application as another client does. No store has it yet.
func (s *apiServer) put(a argocd.Application) *argocd.Application {
	a.TypeMeta = metav1.TypeMeta{APIVersion: argocd.GroupVersion.String(), Kind: "Application"}
	return into[argocd.Application](s.write(a.Namespace, a.Name, a.Kind, a))
}

// putObject is put for an object of another kind.
func (s *apiServer) putObject(kind string, o argocd.Object) *argocd.Object {
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: kind}
	if kind == "AppProject" {
		o.APIVersion = argocd.GroupVersion.String()
	}
	return into[argocd.Object](s.write(o.Namespace, o.Name, kind, o))
}

func (s *apiServer) write(namespace, name, kind string, object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // what tests declare is fit for JSON
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store(pathOf(kind, namespace, name), text)
}

// store keeps an object under a new revision, and returns it as it is then. s.mu is held.
func (s *apiServer) store(at string, text []byte) []byte {
	s.revision++
	text, err := jsonpatch.MergePatch(text, fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, s.revision))
	object := &stored{text: text}
	if err != nil || json.Unmarshal(text, object) != nil {
		panic("what is stored is no object") // which was decoded before
	}
	s.objects[at] = object
	if object.DeletionTimestamp != nil && len(object.Finalizers) == 0 {
		delete(s.objects, at)
	}
	return text
}

// into decodes an object, nil if there is none.
func into[T any](text []byte) *T {
	if text == nil {
		return nil
	}
	var object T
	if err := json.Unmarshal(text, &object); err != nil {
		panic(err) // what is stored was decoded before
	}
	return &object
}

// get returns an application as it is stored, nil if it is not.
func (s *apiServer) get(name string) *argocd.Application {
	for _, namespace := range []string{"argocd", "berlin"} {
		if text := s.read(pathOf("Application", namespace, name)); text != nil {
			return into[argocd.Application](text)
		}
	}
	return nil
}

// object returns an object of another kind in Argo CD's namespace as it is stored, nil if it is not.
func (s *apiServer) object(kind, name string) *argocd.Object {
	return into[argocd.Object](s.read(pathOf(kind, "argocd", name)))
}

func (s *apiServer) read(at string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object := s.objects[at]; object != nil {
		return object.text
	}
	return nil
}

// forget deletes an object as another client does.
func (s *apiServer) forget(kind, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	delete(s.objects, pathOf(kind, namespace, name))
}

// deny makes the API server deny all writes from now on.
func (s *apiServer) deny(status *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denial = status
}

// intercept gives requests to another handler from now on; see instead.
func (s *apiServer) intercept(instead func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instead = instead
}

// takeWrites returns what was written since the last call.
func (s *apiServer) takeWrites() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writes
	s.writes = nil
	return w
}

// ServeHTTP answers one request. Watches get no events.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	instead := s.instead
	s.mu.Unlock()
	if instead != nil && instead(w, r) {
		return
	}
	if q := r.URL.Query(); q.Has("watch") && !q.Has("sendInitialEvents") {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush() // to a client that has hung up, if it does not work
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var answer any
	code := http.StatusOK
	switch object := s.objects[r.URL.Path]; {
	case err != nil:
		answer, code = failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	case s.quotes && r.Method != http.MethodGet:
		answer, code = quoting(body)
	case s.denial != nil && r.Method != http.MethodGet:
		answer, code = s.denial, int(s.denial.Code)
	case r.Method == http.MethodPost:
		answer, code = s.create(r.URL.Path, body)
	case r.URL.Query().Has("watch"): // and is to begin with what there is, which few API servers do
		answer, code = failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case object == nil && strings.HasSuffix(r.URL.Path, "s"):
		answer, code = s.list(r)
	case object == nil:
		answer, code = failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPatch:
		answer, code = s.patch(r.URL.Path, object, body)
	case r.Method == http.MethodDelete:
		answer, code = s.delete(r.URL.Path, object, body)
	default:
		answer = json.RawMessage(object.text)
	}
	reply(w, code, answer)
}

func reply(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // to a client that has hung up, if it does not work
}

// list answers a list. s.mu is held.
func (s *apiServer) list(r *http.Request) (any, int) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	only, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	items := []json.RawMessage{}
	for at, object := range s.objects {
		if path.Dir(at) == r.URL.Path && selector.Matches(labels.Set(object.Labels)) && only.Matches(fields.Set{"metadata.name": object.Name}) {
			items = append(items, object.text)
		}
	}
	return listOf(r, strconv.Itoa(s.revision), items), http.StatusOK
}

// listOf is the list of what a request asks for.
func listOf(r *http.Request, revision string, items []json.RawMessage) any {
	version := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")
	version, _, _ = strings.Cut(version, "/namespaces/")
	kind := map[string]string{"applications": "Application", "appprojects": "AppProject", "secrets": "Secret", "configmaps": "ConfigMap"}[path.Base(r.URL.Path)]
	return map[string]any{
		"apiVersion": strings.TrimSuffix(version, "/"+path.Base(r.URL.Path)), "kind": kind + "List",
		"metadata": map[string]any{"resourceVersion": revision}, "items": items,
	}
}

func failure(code int32, reason metav1.StatusReason) (any, int) {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	}, int(code)
}

// quoting is how an API server answers what it cannot decode once it is patched, and how webhooks may answer anything.
func quoting(body []byte) (any, int) {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf(` "" is invalid: patch: Invalid value: %q: illegal base64 data`, body),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: string(body), Message: string(body)}}},
	}, http.StatusUnprocessableEntity
}

func (s *apiServer) create(at string, body []byte) (any, int) {
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(body, &object) != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	at = path.Join(at, object.Name)
	if s.objects[at] != nil {
		return failure(http.StatusConflict, metav1.StatusReasonAlreadyExists)
	}
	s.writes = append(s.writes, "create")
	body, err := jsonpatch.MergePatch(body, fmt.Appendf(nil, `{"metadata":{"uid":"made-%d"}}`, s.revision))
	if err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	return json.RawMessage(s.store(at, body)), http.StatusCreated
}

func (s *apiServer) patch(at string, object *stored, body []byte) (any, int) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	after, err := patch.Apply(object.text)
	if err == nil && s.admit != nil {
		after = s.admit(after)
	}
	var next stored
	if err != nil || json.Unmarshal(after, &next) != nil {
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	if next.ResourceVersion != object.ResourceVersion {
		return failure(http.StatusConflict, metav1.StatusReasonConflict)
	}
	if is, will := into[argocd.Object](object.text), into[argocd.Object](after); object.Kind == "Secret" &&
		(is.Type != will.Type || is.Immutable && !maps.Equal(is.Data, will.Data)) {
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	s.writes = append(s.writes, fmt.Sprint("patch to ", next.Finalizers))
	return json.RawMessage(s.store(at, after)), http.StatusOK
}

func (s *apiServer) delete(at string, object *stored, body []byte) (any, int) {
	var o metav1.DeleteOptions
	if json.Unmarshal(body, &o) != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	if p := o.Preconditions; p != nil && (p.UID != nil && *p.UID != object.UID || p.ResourceVersion != nil && *p.ResourceVersion != object.ResourceVersion) {
		return failure(http.StatusConflict, metav1.StatusReasonConflict)
	}
	s.writes = append(s.writes, fmt.Sprint("delete with ", object.Finalizers))
	now := time.Now().UTC().Format(time.RFC3339)
	text, err := jsonpatch.MergePatch(object.text, fmt.Appendf(nil, `{"metadata":{"deletionTimestamp":%q}}`, now))
	if err != nil {
		return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	}
	if left := s.store(at, text); len(object.Finalizers) > 0 {
		return json.RawMessage(left), http.StatusOK
	}
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, http.StatusOK
}

// applications returns a store that has only what it wrote, or was given by record.
func (s *apiServer) applications(t *testing.T, keepStatus bool) facets.Applications {
	t.Helper()
	client, err := argocd.NewClient(&rest.Config{Host: s.URL}, argocd.Applications(), argocd.Scope{})
	require.NoError(t, err)
	return facets.Applications{Client: client, Store: follow.New(follow.Options[*argocd.Application, *argocd.App]{
		Kind: &argocd.Application{}, Reduce: argocd.Reduce(keepStatus),
		Group: func(app *argocd.App) string {
			if keepStatus {
				return ""
			}
			return app.Name.Namespace
		},
		Changed: func(_, _ *argocd.App) {},
	})}
}

// spoke is a spoke as its agent sees it.
func (s *apiServer) spoke(t *testing.T) facets.Side {
	t.Helper()
	return facets.SpokeSide(s.applications(t, true), mapping.ByNamespace{Spoke: "argocd"})
}

// hub is the hub as the agent berlin may see it.
func (s *apiServer) hub(t *testing.T) facets.Side {
	t.Helper()
	return facets.HubSide(s.applications(t, false), "berlin")
}

// record gives a store the application as it is stored now.
func record(t *testing.T, a facets.Applications, stored *argocd.Application) {
	t.Helper()
	_, err := a.Store.RecordWrite(stored)
	require.NoError(t, err)
}
