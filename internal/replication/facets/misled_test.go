package facets_test

import (
	"encoding/json"
	"net/http"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// An API server may answer a list of "any" revision from a cache that lags. Who then believes that there is no replica object
// says that its deletion is done, the hub's application goes, and the resources stay.
func TestFirstListIsNotFromCache(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	p.spokeAPI.put(onSpoke(foreground))
	p.spokeAPI.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if q := r.URL.Query(); q.Has("watch") || q.Get("resourceVersion") != "0" {
			return false
		}
		reply(w, http.StatusOK, listOf(r, "0", nil))
		return true
	})
	p.run(p.spoke.Cluster)
	held, err := p.there.Replicas[facets.Application].Apply(t.Context(), "guestbook", deletion(t, foreground))
	require.NoError(t, err)
	require.NotZero(t, held, "it takes its time: its resources go first")
	require.NotNil(t, p.spokeAPI.get("guestbook").DeletionTimestamp)
}

// A policy that adds the cascade finalizer to every Application, or removes it, contradicts the deletion that the hub wants.
// That is reported, and nothing is deleted.
func TestDeletionChecksFinalizersChangedByWebhook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there   []string
		webhook string // makes these the finalizers
		object  converge.Object
	}{
		"it is to go without": {[]string{foreground}, `["` + foreground + `"]`, deletion(t)},
		"it is to go with":    {nil, `[]`, deletion(t, foreground)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			server.admit = func(text []byte) []byte {
				text, err := jsonpatch.MergePatch(text, []byte(`{"metadata":{"finalizers":`+c.webhook+`}}`))
				if err != nil {
					panic(err) // what is stored is an object
				}
				return text
			}
			replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{})
			record(t, replica.Applications, server.put(onSpoke(c.there...)))
			_, err := replica.Apply(t.Context(), "guestbook", c.object)
			require.ErrorContains(t, err, "puts finalizers back, or takes them away")
			require.NotErrorIs(t, err, converge.ErrRefused, "it is tried again")
			require.Nil(t, server.get("guestbook").DeletionTimestamp)
		})
	}
}

// A proxy before the API server that has lost it answers that there is no such page. The object is there all the same.
func TestNotFoundFromProxyIsNotDeletion(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{})
	record(t, replica.Applications, server.put(onSpoke(foreground)))
	server.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "default backend - 404", http.StatusNotFound)
		return true
	})
	_, err := replica.Apply(t.Context(), "guestbook", deletion(t, foreground))
	require.ErrorContains(t, err, "no answer of Kubernetes' API")
	require.NotErrorIs(t, err, converge.ErrRefused)
	require.NotZero(t, replica.Held("guestbook"))

	server.intercept(nil)
	held, err := replica.Apply(t.Context(), "guestbook", deletion(t, foreground))
	require.NoError(t, err)
	require.NotZero(t, held)
}

// A patch that does not fit the newest revision is invalid. Whether that is why cannot be known while nothing can be read.
func TestRefusedPatchIsRetriedOnNewestRevision(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	side := server.hub(t)
	app := onHub()
	app.Operation = json.RawMessage(`{"sync":{},"info":[{"name":"` + argocd.InfoIntent + `","value":"one"}]}`)
	record(t, side.Applications, server.put(app))
	app.Operation = nil // somebody took it back, and nobody has heard of that
	server.put(app)
	server.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		answer, code := failure(http.StatusGatewayTimeout, "Timeout")
		reply(w, code, answer)
		return true
	})
	payload := []byte(`{"status":{"sync":{"status":"Synced"}},"finished":{"operation":"one"}}`)
	object := converge.Object{State: converge.State{UID: "on-hub", Version: converge.VersionOf(payload)}, Payload: payload}
	replica := facets.NewStatusReplica(side)
	_, err := replica.Apply(t.Context(), "guestbook", object)
	require.Error(t, err)
	require.NotErrorIs(t, err, converge.ErrRefused)

	server.intercept(nil)
	_, err = replica.Apply(t.Context(), "guestbook", object)
	require.NoError(t, err)
}
