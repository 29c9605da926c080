package facets_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// requireNothing requires that the hub says, or does not, that the agent should hold nothing under a key.
func (p *pair) requireNothing(f converge.Facet, key converge.Key, want bool) {
	p.Helper()
	nothing, err := p.here.Sources[f].Confirm(p.Context(), key, "any")
	require.NoError(p, err)
	require.Equal(p, want, nothing)
	_, exists := p.here.Sources[f].Project(key)
	require.Equal(p, !want, exists, "the cache shows the answer")
}

// What the API server has and the cache has not was created through another principal.
func TestHubAsksTheAPIServerForWhatItsCacheLacks(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	for _, f := range []converge.Facet{facets.Application, facets.Intent, facets.AppProject, facets.Repository, facets.RepoCreds, facets.GPGKeys} {
		p.requireNothing(f, "shop", true)
	}
	p.hubAPI.put(shop(`{"project":"default"}`))
	p.hubAPI.putObject("AppProject", teamProject("team", "berlin"))
	p.hubAPI.putObject("Secret", aSecret("repo", "repository", "team"))
	keys := argocd.Object{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: argocd.KeysConfigMap, UID: "keys"}, Data: map[string]string{"key": "a"}}
	p.hubAPI.putObject("ConfigMap", keys)
	p.requireNothing(facets.Application, "shop", false)
	p.requireNothing(facets.Intent, "shop", true) // nothing is asked of it
	p.requireNothing(facets.Repository, "repo", false)
	p.requireNothing(facets.RepoCreds, "repo", true)
	p.requireNothing(facets.AppProject, "team", false)
	p.requireNothing(facets.GPGKeys, argocd.KeysConfigMap, false)
}

func shop(spec string) argocd.Application {
	return argocd.Application{ObjectMeta: metav1.ObjectMeta{Namespace: "berlin", Name: "shop", UID: "hub-shop"}, Spec: []byte(spec)}
}

// What the cache shows as of another agent, or of a project for other agents, may have been given to this one since.
func TestHubAsksTheAPIServerForWhatChanged(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	p.onHub("AppProject", teamProject("team", "paris"))
	p.onHub("Secret", aSecret("repo", "repository", "team"))
	p.requireNothing(facets.AppProject, "team", true)
	p.requireNothing(facets.Repository, "repo", true)
	p.hubAPI.putObject("AppProject", teamProject("team", "berlin"))
	p.requireNothing(facets.Repository, "repo", false)
	p.requireNothing(facets.AppProject, "team", false)

	ignored := shop(`{"project":"default"}`)
	ignored.Labels = map[string]string{argocd.LabelIgnore: "true"}
	record(t, p.hub.Applications, p.hubAPI.put(ignored))
	p.requireNothing(facets.Application, "shop", true)
	p.hubAPI.put(shop(`{"project":"default"}`))
	p.requireNothing(facets.Application, "shop", false)
}

// What the API server has no more the cache shows no more.
func TestHubForgetsWhatTheAPIServerLacks(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	record(t, p.hub.Applications, p.hubAPI.put(shop(`{"project":"default"}`)))
	p.onHub("Secret", aSecret("repo", "repository", ""))
	p.hubAPI.forget("Application", "berlin", "shop")
	p.hubAPI.forget("Secret", "argocd", "repo")
	p.requireNothing(facets.Application, "shop", true)
	p.requireNothing(facets.Repository, "repo", true)
}

// While the API server does not answer nothing is known. It is not asked for what no object can be called.
func TestHubKnowsNothingWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	asked := 0
	p.hubAPI.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		asked++
		answer, code := failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		reply(w, code, answer)
		return true
	})
	for _, f := range []converge.Facet{facets.Application, facets.AppProject, facets.Repository} {
		_, err := p.here.Sources[f].Confirm(t.Context(), "shop", "any")
		require.Error(t, err)
		for _, key := range []converge.Key{"", "a/b", "a/b/c", "../secrets", "A", "a,metadata.name=b", converge.Key(strings.Repeat("a", 254))} {
			p.requireNothing(f, key, true)
		}
	}
	require.Equal(t, 3, asked)
}

// The API server has an object whose deletion the cache has seen: it was restored from a backup. Nobody deletes on that ground.
func TestHubDoesNotTrustACacheThatIsAhead(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	record(t, p.hub.Applications, p.hubAPI.put(shop(`{"project":"default"}`)))
	app, ok := p.hub.Store.Get(types.NamespacedName{Namespace: "berlin", Name: "shop"})
	require.True(t, ok)
	p.hub.Store.RecordDelete(app.Name, app)
	_, err := p.here.Sources[facets.Application].Confirm(t.Context(), "shop", "any")
	require.ErrorContains(t, err, "it is there, and has not been noticed yet")
}
