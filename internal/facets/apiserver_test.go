package facets_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

// apiServer is an API server that has applications of one namespace and nothing else. It keeps to what a real one promises
// of revisions, preconditions and finalizers, and denies what it is told to.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex // guards all below
	revision int
	objects  map[string]*argocd.Application
	writes   []string // what was asked for and done, in order
	denial   *metav1.Status
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{objects: make(map[string]*argocd.Application)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// put stores an application as somebody else does, of whom nobody has heard yet.
func (s *apiServer) put(a argocd.Application) *argocd.Application {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store(a)
}

// store keeps an application under a new revision. s.mu is held.
func (s *apiServer) store(a argocd.Application) *argocd.Application {
	s.revision++
	a.TypeMeta = metav1.TypeMeta{APIVersion: argocd.GroupVersion.String(), Kind: "Application"}
	a.ResourceVersion = strconv.Itoa(s.revision)
	s.objects[a.Name] = &a
	if a.DeletionTimestamp != nil && len(a.Finalizers) == 0 {
		delete(s.objects, a.Name)
	}
	return &a
}

// get returns an application as it is stored, nil if it is not.
func (s *apiServer) get(name string) *argocd.Application {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name]
}

// denies has everything that is written denied from now on.
func (s *apiServer) denies(status *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denial = status
}

// done returns what was written since it was asked last.
func (s *apiServer) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writes
	s.writes = nil
	return w
}

// ServeHTTP answers one request.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var answer any
	code := http.StatusOK
	switch a := s.objects[path.Base(r.URL.Path)]; {
	case err != nil:
		answer, code = failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	case s.denial != nil && r.Method != http.MethodGet:
		answer, code = s.denial, int(s.denial.Code)
	case r.Method == http.MethodPost:
		answer, code = s.create(body)
	case a == nil:
		answer, code = failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPatch:
		answer, code = s.patch(a, body)
	case r.Method == http.MethodDelete:
		answer, code = s.delete(a, body)
	default:
		answer = a
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // to a client that has hung up, if it does not work
}

func failure(code int32, reason metav1.StatusReason) (any, int) {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	}, int(code)
}

func (s *apiServer) create(body []byte) (any, int) {
	var a argocd.Application
	if json.Unmarshal(body, &a) != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	if s.objects[a.Name] != nil {
		return failure(http.StatusConflict, metav1.StatusReasonAlreadyExists)
	}
	s.writes = append(s.writes, "create")
	a.UID = "made-here"
	return s.store(a), http.StatusCreated
}

func (s *apiServer) patch(a *argocd.Application, body []byte) (any, int) {
	before, err := json.Marshal(a)
	patch, decoding := jsonpatch.DecodePatch(body)
	if err != nil || decoding != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	after, err := patch.Apply(before)
	var next argocd.Application
	if err != nil || json.Unmarshal(after, &next) != nil {
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	if next.ResourceVersion != a.ResourceVersion {
		return failure(http.StatusConflict, metav1.StatusReasonConflict)
	}
	s.writes = append(s.writes, fmt.Sprint("patch to ", next.Finalizers))
	return s.store(next), http.StatusOK
}

func (s *apiServer) delete(a *argocd.Application, body []byte) (any, int) {
	var o metav1.DeleteOptions
	if json.Unmarshal(body, &o) != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	if p := o.Preconditions; p != nil && (p.UID != nil && *p.UID != a.UID || p.ResourceVersion != nil && *p.ResourceVersion != a.ResourceVersion) {
		return failure(http.StatusConflict, metav1.StatusReasonConflict)
	}
	s.writes = append(s.writes, fmt.Sprint("delete with ", a.Finalizers))
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	deleted := *a
	deleted.DeletionTimestamp = &now
	left := s.store(deleted)
	if len(left.Finalizers) == 0 {
		return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, http.StatusOK
	}
	return left, http.StatusOK
}

// applications are those of an API server, of which nothing is known but what was written or is told of.
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

// hears has a store hear of an application as it is stored now.
func hears(t *testing.T, a facets.Applications, stored *argocd.Application) {
	t.Helper()
	_, err := a.Store.Wrote(stored)
	require.NoError(t, err)
}
