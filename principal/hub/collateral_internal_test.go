package hub

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// changes are what a listener is told, one after the other.
type changes chan string

func (c changes) Changed(agent string, f converge.Facet, key converge.Key) {
	if f == facets.Application || f == facets.AppProject {
		c <- agent + " " + string(f) + " " + string(key)
	}
}

func (c changes) Resync(agent string, fs ...converge.Facet) { c <- agent + " resync " + string(fs[0]) }

func (c changes) next(t *testing.T) string {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(2 * time.Minute):
		require.FailNow(t, "nobody was told")
		return ""
	}
}

// newDeciding returns a hub that finds out why objects go, what its listeners are told, and the paths of what is being deleted.
func newDeciding(t *testing.T) (h *Hub, told changes, going *sync.Map, broken *atomic.Bool) {
	t.Helper()
	h, _ = newTestHub(t)
	going, broken = &sync.Map{}, &atomic.Bool{}
	h.collateral.api = apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "a proxy", http.StatusBadGateway)
			return
		}
		object := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
		if state, ok := going.Load(r.URL.Path); ok && state == "gone" {
			answerStatus(t, w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		} else if ok {
			now := metav1.NewTime(time.Now())
			object.DeletionTimestamp = &now
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object) // to a client that has hung up, if it does not work
	})
	told = make(changes, 100)
	h.Subscribe(told)
	h.connect("berlin", facets.Managed)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.collateral.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return h, told, going, broken
}

// uid gives an object this UID.
func uid(uid string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.UID = types.UID(uid) }
}

func beingDeleted(m *metav1.ObjectMeta) {
	now := metav1.Now()
	m.DeletionTimestamp, m.Finalizers = &now, []string{argocd.FinalizerCascade}
}

// What goes with its namespace, or with the definition, is told from what somebody deletes.
func TestObjectsThatAreTakenAlongAreKnown(t *testing.T) {
	t.Parallel()
	const namespace = "/api/v1/namespaces/berlin"
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/applications.argoproj.io"
	for name, c := range map[string]struct {
		path, state string
		want        converge.Verdict
	}{
		"somebody deletes it":     {"/api/v1/namespaces/paris", "going", converge.Deliberate},
		"the namespace is going":  {namespace, "going", converge.TakenAlong},
		"the namespace is gone":   {namespace, "gone", converge.TakenAlong},
		"the definition is going": {definition, "going", converge.TakenAlong},
		"the definition is gone":  {definition, "gone", converge.TakenAlong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, told, going, _ := newDeciding(t)
			var r revision
			app := h.writeApplication(t, &r, "berlin/shop", "berlin", uid("one"))
			other := h.writeApplication(t, &r, "berlin/other", "berlin", uid("two"))
			require.Equal(t, "berlin application shop", told.next(t))
			require.Equal(t, "berlin application other", told.next(t))
			going.Store(c.path, c.state)

			h.cluster.Store.RecordDelete(app.Name, app)
			require.Equal(t, "berlin application shop", told.next(t))
			require.Equal(t, c.want, h.collateral.Of("one", false))
			h.writeApplication(t, &r, "berlin/other", "berlin", uid("two"), beingDeleted)
			require.Equal(t, "berlin application other", told.next(t))
			require.Equal(t, c.want, h.collateral.Of("two", true))
			// That the namespace goes afterwards makes no difference to what somebody deleted.
			going.Store(namespace, "gone")
			current, _ := h.cluster.Store.Get(other.Name)
			h.cluster.Store.RecordDelete(other.Name, current)
			require.Equal(t, "berlin application other", told.next(t))
			require.Equal(t, c.want, h.collateral.Of("two", false))

			require.Equal(t, c.want == converge.TakenAlong, h.collateral.Any())
			h.collateral.Release([]string{"one", "two"})
			require.False(t, h.collateral.Any())
			require.Equal(t, converge.Deliberate, h.collateral.Of("one", false))
			require.Empty(t, h.collateral.known, "nothing is left of what is gone")
		})
	}
}

// While the API server does not say why an object went, nobody is told that it did.
func TestDeletionsWaitForTheAPIServer(t *testing.T) {
	t.Parallel()
	h, told, going, broken := newDeciding(t)
	var r revision
	app := h.writeApplication(t, &r, "berlin/shop", "berlin", uid("one"))
	require.Equal(t, "berlin application shop", told.next(t))
	broken.Store(true)
	h.cluster.Store.RecordDelete(app.Name, app)
	require.Equal(t, converge.Undecided, h.collateral.Of("one", false))
	h.writeApplication(t, &r, "berlin/next", "berlin", uid("two"))
	require.Equal(t, "berlin application next", told.next(t), "all else goes on")
	going.Store("/api/v1/namespaces/berlin", "gone")
	broken.Store(false)
	require.Equal(t, "berlin application shop", told.next(t))
	require.Equal(t, converge.TakenAlong, h.collateral.Of("one", false))
}

// What a new list lacks is compared once it is known why.
func TestWhatANewListLacksIsDecided(t *testing.T) {
	t.Parallel()
	h, told, going, _ := newDeciding(t)
	var r revision
	app := h.writeApplication(t, &r, "berlin/shop", "berlin", uid("one"))
	require.Equal(t, "berlin application shop", told.next(t))
	going.Store("/api/v1/namespaces/berlin", "going")
	(*events)(h).ApplicationsVanished([]*argocd.App{app})
	require.Equal(t, "berlin resync application", told.next(t))
	require.Equal(t, converge.TakenAlong, h.collateral.Of("one", false))
}
