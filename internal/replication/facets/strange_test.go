package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// newMirrorConflict returns a pair whose spoke has an application, and tries to mirror it where a user of the hub has one of the same name.
func newMirrorConflict(t *testing.T, hubs, spokes map[string]string) (p *pair, err error) {
	t.Helper()
	p = newPair(t, facets.Autonomous)
	mine := onHub(foreground)
	mine.Annotations = hubs
	record(t, p.hub.Applications, p.hubAPI.put(mine))
	own := onSpoke()
	own.Annotations = spokes
	record(t, p.spoke.Applications, p.spokeAPI.put(own))
	object, ok := p.there.Sources[facets.Application].Project("guestbook")
	require.True(t, ok)
	_, err = p.here.Replicas[facets.Application].Apply(t.Context(), "guestbook", object)
	return p, err
}

// An agent cannot take an application that a user of the hub made, whatever its own application says.
func TestAutonomousAgentAdoptsNoHubApplication(t *testing.T) {
	t.Parallel()
	p, err := newMirrorConflict(t, nil, map[string]string{adoption: "always"})
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "an application of this name is there already and may not be adopted")
	require.Empty(t, p.hubAPI.takeWrites())

	p, err = newMirrorConflict(t, map[string]string{adoption: "always"}, nil)
	require.NoError(t, err, "a user of the hub says so")
	is := p.hubAPI.get("guestbook")
	require.Equal(t, "berlin", is.Annotations[argocd.AnnotationAgent])
	require.Empty(t, is.Finalizers)
}

// A mirror that lost all annotations is recognised by its project, which mirrors one of the agent's.
func TestMirrorWithoutAnnotationsIsKnownByItsAppProject(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent, project string
		refused        bool
	}{
		"the agent's":   {agent: "berlin", project: "berlin-default"},
		"another's":     {agent: "rome", project: "berlin-default", refused: true},
		"nobody's":      {project: "berlin-default", refused: true},
		"not its own":   {agent: "berlin", project: "berlin-other", refused: true},
		"not there any": {refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Autonomous)
			record(t, p.spoke.Applications, p.spokeAPI.put(onSpoke()))
			require.NoError(t, p.send(facets.Application, "guestbook"))
			if c.project != "" {
				mirrored := teamProject(c.project, "*")
				mirrored.Annotations = map[string]string{argocd.AnnotationAgent: c.agent}
				p.onHub("AppProject", mirrored)
			}
			wiped := *p.hubAPI.get("guestbook")
			wiped.Annotations = nil
			record(t, p.hub.Applications, p.hubAPI.put(wiped))
			object, ok := p.there.Sources[facets.Application].Project("guestbook")
			require.True(t, ok)
			_, err := p.hub.Share("berlin", facets.Autonomous).Replicas[facets.Application].Apply(t.Context(), "guestbook", object)
			if c.refused {
				require.ErrorIs(t, err, converge.ErrRefused)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// The mirror of an agent's application is never sent to an agent as the hub's own. Intents for the hub's own applications
// beside it are not sent to the agent.
func TestMirroredApplicationIsNotASource(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	shown := onHub()
	shown.Annotations = map[string]string{argocd.AnnotationAgent: "berlin"}
	require.False(t, p.has(shown))
	require.False(t, p.isOffered(facets.Application, "guestbook"))

	p = newPair(t, facets.Autonomous)
	require.False(t, p.has(onHub()))
	shown.Annotations[argocd.AnnotationSourceUID] = "on-spoke"
	require.True(t, p.has(shown))
}

// has reports whether an application on the hub is shared.
func (p *pair) has(app argocd.Application) bool {
	p.Helper()
	record(p.T, p.hub.Applications, p.hubAPI.put(app))
	known, ok := p.hub.Store.Get(types.NamespacedName{Namespace: app.Namespace, Name: app.Name})
	require.True(p, ok)
	return p.here.Has(known)
}

// No controller on the hub works off finalizers that somebody adds to a mirror.
func TestMirroredApplicationIsDeletedDespiteFinalizers(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	record(t, p.spoke.Applications, p.spokeAPI.put(onSpoke()))
	require.NoError(t, p.send(facets.Application, "guestbook"))
	held := *p.hubAPI.get("guestbook")
	held.Finalizers = []string{foreground, "example.com/mine"}
	now := metav1.Now()
	held.DeletionTimestamp = &now
	record(t, p.hub.Applications, p.hubAPI.put(held))
	require.NoError(t, p.send(facets.Application, "guestbook"))
	again := p.hubAPI.get("guestbook")
	require.NotEqual(t, held.UID, again.UID)
	require.Nil(t, again.DeletionTimestamp)
}

func TestAutonomousAgentOutsideAllowedNamespacesIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous, func(hub, _ *facets.Options) {
		hub.Mapping = mapping.ByNamespace{Allowed: func(namespace string) bool { return namespace != "berlin" }}
	})
	record(t, p.spoke.Applications, p.spokeAPI.put(onSpoke()))
	p.onSpoke("AppProject", teamProject("team", "*"))
	for facet, key := range map[converge.Facet]converge.Key{facets.Application: "guestbook", facets.AppProject: "team"} {
		err := p.send(facet, key)
		require.ErrorIs(t, err, converge.ErrRefused)
		require.ErrorContains(t, err, `namespace "berlin": add it to the principal's --allowed-namespaces`)
	}
	require.Empty(t, p.hubAPI.takeWrites())
}

// A hub that lacks the source objects may be one that is not restored yet, or the wrong one: nothing is deleted for that.
func TestReplicaOfAnotherHubIsNotDeleted(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) {
		spoke.AdoptionPolicy.Origin = func() string { return "new" }
	})
	there := onSpoke(foreground)
	there.Annotations = from("on-hub", argocd.AnnotationPrincipalUID, "old")
	record(t, p.spoke.Applications, p.spokeAPI.put(there))
	replica := p.there.Replicas[facets.Application]
	_, err := replica.Remove(t.Context(), "guestbook", "on-hub")
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "its source object was on another hub, and this hub does not have it")
	require.Empty(t, p.spokeAPI.takeWrites())

	delete(there.Annotations, argocd.AnnotationPrincipalUID) // as the documentation says
	record(t, p.spoke.Applications, p.spokeAPI.put(there))
	_, err = replica.Remove(t.Context(), "guestbook", "on-hub")
	require.NoError(t, err)
	require.Nil(t, p.spokeAPI.get("guestbook"))
}

// If the hub has the source object after all, by the same UID, it sends it again, since the replica is stale. Then the
// replica object becomes this hub's.
func TestReplicaOfAnotherHubIsTakenOver(t *testing.T) {
	t.Parallel()
	origin := "old"
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) {
		spoke.AdoptionPolicy.Origin = func() string { return origin }
	})
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	p.onHub("AppProject", teamProject("team", "*"))
	p.onHub("Secret", aSecret("repo", argocd.SecretTypeRepository, "team"))
	keys := map[converge.Facet]converge.Key{facets.Application: "guestbook", facets.AppProject: "team", facets.Repository: "repo"}
	for f, key := range keys {
		require.NoError(t, p.send(f, key))
		require.False(t, p.there.Replicas[f].Stale(key))
	}
	_, hubs := p.spoke.Others()
	require.Empty(t, hubs)
	origin = "new"
	_, hubs = p.spoke.Others()
	require.Equal(t, map[string]int{"old": len(keys)}, hubs)
	for f, key := range keys {
		object, ok := p.here.Sources[f].Project(key)
		require.True(t, ok)
		require.True(t, p.there.Replicas[f].Stale(key))
		_, err := p.there.Replicas[f].Remove(t.Context(), key, object.UID)
		require.ErrorIs(t, err, converge.ErrRefused)
		require.ErrorContains(t, err, "its source object was on another hub, and this hub does not have it")

		require.NoError(t, p.send(f, key))
		require.False(t, p.there.Replicas[f].Stale(key))
		_, err = p.there.Replicas[f].Remove(t.Context(), key, object.UID)
		require.NoError(t, err)
		require.Zero(t, p.there.Replicas[f].Held(key))
	}
}

// No controller works off finalizers that somebody adds to a mirrored project.
func TestMirroredAppProjectHasNoFinalizers(t *testing.T) {
	t.Parallel()
	for name, deleting := range map[string]bool{"kept": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Autonomous)
			p.onSpoke("AppProject", teamProject("team", "*"))
			require.NoError(t, p.send(facets.AppProject, "team"))
			shown := *p.hubAPI.object("AppProject", "berlin-team")
			before := p.here.Replicas[facets.AppProject].Held("team")
			shown.Finalizers = []string{foreground, "example.com/mine"}
			if deleting {
				now := metav1.Now()
				shown.DeletionTimestamp = &now
			}
			p.onHub("AppProject", shown)
			require.NotEqual(t, before, p.here.Replicas[facets.AppProject].Held("team"), "the spoke is asked for it")
			object, ok := p.there.Sources[facets.AppProject].Project("team")
			require.True(t, ok)
			_, err := p.here.Replicas[facets.AppProject].Apply(t.Context(), "team", object)
			require.NoError(t, err)
			require.Contains(t, p.hubAPI.takeWrites(), "patch to []")
		})
	}
}

// A deletion with the resources is not said to be done while something is there that may be the replica object.
func TestDeletionOfUnknownReplicaIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		adoption   facets.AdoptionPolicy
		there      map[string]string
		finalizers []string
		refused    bool
	}{
		"wiped":                            {finalizers: []string{foreground}, refused: true},
		"wiped, and its resources stay":    {},
		"wiped, and none would be adopted": {finalizers: []string{foreground}, adoption: facets.AdoptionPolicy{Adoption: facets.AdoptNever}},
		"another's":                        {finalizers: []string{foreground}, there: from("another")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed, func(_, spoke *facets.Options) { spoke.AdoptionPolicy = c.adoption })
			there := onSpoke(foreground)
			there.Annotations = c.there
			record(t, p.spoke.Applications, p.spokeAPI.put(there))
			_, err := p.there.Replicas[facets.Application].Apply(t.Context(), "guestbook", deletion(t, c.finalizers...))
			if c.refused {
				require.ErrorIs(t, err, converge.ErrRefused)
				require.ErrorContains(t, err, "nothing says whose it is: delete it there if it is to go")
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, p.spokeAPI.takeWrites())
		})
	}
}

// The same holds for a replica object in a namespace that the agent may not write to any more.
func TestReplicaInForbiddenNamespaceIsNotReportedGone(t *testing.T) {
	t.Parallel()
	for finalizer, refused := range map[string]bool{foreground: true, "": false} {
		p := newPair(t, facets.Managed, func(_, spoke *facets.Options) {
			spoke.ApplicationNamespace = ""
			spoke.Mapping = mapping.ByDestination{Spoke: "elsewhere", Allowed: func(string) bool { return false }}
		})
		there := onSpoke(foreground)
		there.Annotations = from("on-hub")
		record(t, p.spoke.Applications, p.spokeAPI.put(there))
		var finalizers []string
		if refused {
			finalizers = append(finalizers, finalizer)
		}
		_, err := p.there.Replicas[facets.Application].Apply(t.Context(), "argocd/guestbook", deletion(t, finalizers...))
		if refused {
			require.ErrorIs(t, err, converge.ErrRefused)
			require.ErrorContains(t, err, "--allowed-namespaces")
		} else {
			require.NoError(t, err)
		}
		require.Empty(t, p.spokeAPI.takeWrites())
	}
}

// Without a source UID a replica object would never be removed.
func TestApplicationWithoutUIDIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	object := source(t, p)
	object.UID = ""
	_, err := p.there.Replicas[facets.Application].Apply(t.Context(), "guestbook", object)
	require.ErrorIs(t, err, converge.ErrRefused)
	require.Empty(t, p.spokeAPI.takeWrites())
}
