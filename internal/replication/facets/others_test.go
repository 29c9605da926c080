package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// calledBerlin has the hub say that the agent is called berlin.
func calledBerlin(_, spoke *facets.Options) {
	spoke.AdoptionPolicy.Agent = func() string { return "berlin" }
}

// shared are objects of the hub's for the agent, one of each kind, by their facets.
func (p *pair) shared() map[converge.Facet]converge.Key {
	p.Helper()
	record(p.T, p.hub.Applications, p.hubAPI.put(onHub(foreground)))
	p.onHub("AppProject", teamProject("team", "berlin"))
	p.onHub("Secret", aSecret("repo", argocd.SecretTypeRepository, "team"))
	p.onHub("ConfigMap", argocd.Object{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: argocd.KeysConfigMap, UID: "hub-keys"}, Data: map[string]string{"A": "key"},
	})
	return map[converge.Facet]converge.Key{
		facets.Application: "guestbook", facets.AppProject: "team", facets.Repository: "repo", facets.GPGKeys: argocd.KeysConfigMap,
	}
}

// annotate has somebody change annotations of the replica objects of shared, and returns these as they are stored.
func (p *pair) annotate(change func(map[string]string)) []any {
	p.Helper()
	app := *p.spokeAPI.get("guestbook")
	change(app.Annotations)
	record(p.T, p.spoke.Applications, p.spokeAPI.put(app))
	stored := []any{p.spokeAPI.get("guestbook")}
	for kind, name := range map[string]string{"AppProject": "team", "Secret": "repo", "ConfigMap": argocd.KeysConfigMap} {
		object := *p.spokeAPI.object(kind, name)
		change(object.Annotations)
		p.onSpoke(kind, object)
		stored = append(stored, p.spokeAPI.object(kind, name))
	}
	p.spokeAPI.takeWrites()
	return stored
}

// An agent with another's certificate, or on another's cluster, finds what that one keeps there. It does not count it as its own, and
// changes and deletes nothing of it, whatever its hub says. Once somebody hands it over, it is the agent's.
func TestReplicasOfAnotherAgentAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, calledBerlin)
	keys := p.shared()
	for facet, key := range keys {
		require.NoError(t, p.send(facet, key), facet)
	}
	require.Empty(t, p.others())
	p.annotate(func(annotations map[string]string) {
		require.Equal(t, "berlin", annotations[argocd.AnnotationAgent])
		annotations[argocd.AnnotationAgent] = "paris"
	})
	require.Equal(t, map[string]int{"paris": len(keys)}, p.others())

	for facet, key := range keys {
		object, ok := p.here.Sources[facet].Project(key)
		require.True(t, ok, facet)
		replica := p.there.Replicas[facet]
		require.Zero(t, replica.Held(key), facet)
		for held := range replica.All() {
			require.Fail(t, "it is not the agent's own", "%s %s", facet, held)
		}
		require.True(t, replica.Stale(key), "%s: nothing is restored", facet)
		_, err := replica.Apply(t.Context(), key, object)
		require.ErrorIs(t, err, converge.ErrRefused, facet)
		require.ErrorContains(t, err, `the replica object for another agent, "paris", and this is agent "berlin": if this is the cluster of "paris"`, facet)
		for _, uid := range []string{"", object.UID} {
			held, err := replica.Remove(t.Context(), key, uid)
			require.NoError(t, err, facet)
			require.Zero(t, held, facet)
		}
	}
	application := p.there.Replicas[facets.Application]
	_, err := application.Apply(t.Context(), "guestbook", deletion(t, foreground))
	require.ErrorIs(t, err, converge.ErrRefused, "the hub does not hear that it is gone")
	_, err = p.there.Replicas[facets.Intent].Remove(t.Context(), "guestbook", "")
	require.NoError(t, err)
	for key := range p.there.Sources[facets.Status].All() {
		require.Fail(t, "nor is its status the agent's", key)
	}
	require.Empty(t, p.spokeAPI.takeWrites())

	p.annotate(func(annotations map[string]string) { delete(annotations, argocd.AnnotationAgent) })
	for facet, key := range keys {
		require.NoError(t, p.send(facet, key), facet)
	}
	p.annotate(func(annotations map[string]string) { require.Equal(t, "berlin", annotations[argocd.AnnotationAgent]) })
}

// others are the replica objects for other agents.
func (p *pair) others() map[string]int {
	agents, _ := p.spoke.Others()
	return agents
}

// The watch may not have said yet whose an application is that is there under the name.
func TestReplicaOfAnotherAgentThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	for name, deleting := range map[string]bool{"applied": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed, calledBerlin)
			p.shared()
			require.NoError(t, p.send(facets.Application, "guestbook"))
			app := *p.spokeAPI.get("guestbook")
			app.Annotations[argocd.AnnotationAgent], app.Labels = "paris", map[string]string{"of": "paris"}
			p.spokeAPI.put(app)
			p.spokeAPI.takeWrites()
			changed := onHub(foreground)
			changed.Labels = map[string]string{"of": "berlin"}
			record(t, p.hub.Applications, p.hubAPI.put(changed))
			if deleting {
				_, err := p.there.Replicas[facets.Application].Remove(t.Context(), "guestbook", "on-hub")
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, p.send(facets.Application, "guestbook"), converge.ErrRefused)
			}
			is := p.spokeAPI.get("guestbook")
			require.NotNil(t, is)
			require.Equal(t, app.Labels, is.Labels)
			require.Equal(t, app.Finalizers, is.Finalizers)
		})
	}
}

// Replica objects from before agents wrote their names are the agent's. They count as different until they have the name.
func TestReplicasWithoutAgentGetItsName(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, calledBerlin)
	keys := p.shared()
	for facet, key := range keys {
		require.NoError(t, p.send(facet, key), facet)
	}
	p.annotate(func(annotations map[string]string) { delete(annotations, argocd.AnnotationAgent) })
	require.Empty(t, p.others())
	for facet, key := range keys {
		object, _ := p.here.Sources[facet].Project(key)
		replica := p.there.Replicas[facet]
		held := replica.Held(key)
		require.Equal(t, object.UID, held.UID, "%s: what the hub does not have is deleted", facet)
		require.NotEqual(t, object.Version, held.Version, "%s: what it has is sent again", facet)
		require.False(t, replica.Stale(key), facet)
		require.NoError(t, p.send(facet, key), facet)
	}
	p.annotate(func(annotations map[string]string) { require.Equal(t, "berlin", annotations[argocd.AnnotationAgent]) })
}

// A hub that does not say the agent's name leaves names as they are.
func TestReplicasOfAgentWhoseNameIsNotKnown(t *testing.T) {
	t.Parallel()
	agent := "berlin"
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) {
		spoke.AdoptionPolicy.Agent = func() string { return agent }
	})
	keys := p.shared()
	for facet, key := range keys {
		require.NoError(t, p.send(facet, key), facet)
	}
	agent = ""
	for facet, key := range keys {
		require.NoError(t, p.send(facet, key), facet)
	}
	p.annotate(func(annotations map[string]string) { require.Equal(t, "berlin", annotations[argocd.AnnotationAgent]) })
}
