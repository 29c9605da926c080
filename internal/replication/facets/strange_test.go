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

// shows returns a pair whose spoke has an application of its own, and tries to show it where the hub has one of the people's.
func shows(t *testing.T, hubs, spokes map[string]string) (p *pair, err error) {
	t.Helper()
	p = newPair(t, facets.Autonomous)
	mine := onHub(foreground)
	mine.Annotations = hubs
	hears(t, p.hub.Applications, p.hubAPI.put(mine))
	own := onSpoke()
	own.Annotations = spokes
	hears(t, p.spoke.Applications, p.spokeAPI.put(own))
	object, ok := p.there.Sources[facets.Application].Project("guestbook")
	require.True(t, ok)
	_, err = p.here.Replicas[facets.Application].Apply(t.Context(), "guestbook", object)
	return p, err
}

// What people of the hub made is not for an agent to take, whatever its application says of that.
func TestAutonomousAgentAdoptsNoHubApplication(t *testing.T) {
	t.Parallel()
	p, err := shows(t, nil, map[string]string{adoption: "always"})
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "an application of this name is there already and may not be adopted")
	require.Empty(t, p.hubAPI.done())

	p, err = shows(t, map[string]string{adoption: "always"}, nil)
	require.NoError(t, err, "a person of the hub says so")
	is := p.hubAPI.get("guestbook")
	require.Equal(t, "berlin", is.Annotations[argocd.AnnotationAgent])
	require.Empty(t, is.Finalizers)
}

// One that lost every mark is known by its project, which shows one of the agent's.
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
			if c.project != "" {
				mirrored := teamProject(c.project, "*")
				mirrored.Annotations = map[string]string{argocd.AnnotationAgent: c.agent}
				p.onHub("AppProject", mirrored)
			}
			hears(t, p.spoke.Applications, p.spokeAPI.put(onSpoke()))
			require.NoError(t, p.sends(facets.Application, "guestbook"))
			wiped := *p.hubAPI.get("guestbook")
			wiped.Annotations = nil
			hears(t, p.hub.Applications, p.hubAPI.put(wiped))
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

// What only shows an agent's application is never given to an agent as the hub's own, and what is asked of the hub's own beside
// it is not the agent's.
func TestMirroredApplicationIsNotASource(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	shown := onHub()
	shown.Annotations = map[string]string{argocd.AnnotationAgent: "berlin"}
	require.False(t, p.has(shown))
	require.False(t, p.offers(facets.Application, "guestbook"))

	p = newPair(t, facets.Autonomous)
	require.False(t, p.has(onHub()))
	shown.Annotations[argocd.AnnotationSourceUID] = "on-spoke"
	require.True(t, p.has(shown))
}

// has reports whether an application on the hub is shared.
func (p *pair) has(app argocd.Application) bool {
	p.Helper()
	hears(p.T, p.hub.Applications, p.hubAPI.put(app))
	known, ok := p.hub.Store.Get(types.NamespacedName{Namespace: app.Namespace, Name: app.Name})
	require.True(p, ok)
	return p.here.Has(known)
}

// Nobody on the hub works finalizers off that somebody gives to what is only shown.
func TestMirroredApplicationIsDeletedDespiteFinalizers(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	hears(t, p.spoke.Applications, p.spokeAPI.put(onSpoke()))
	require.NoError(t, p.sends(facets.Application, "guestbook"))
	held := *p.hubAPI.get("guestbook")
	held.Finalizers = []string{foreground, "example.com/mine"}
	now := metav1.Now()
	held.DeletionTimestamp = &now
	hears(t, p.hub.Applications, p.hubAPI.put(held))
	require.NoError(t, p.sends(facets.Application, "guestbook"))
	again := p.hubAPI.get("guestbook")
	require.NotEqual(t, held.UID, again.UID)
	require.Nil(t, again.DeletionTimestamp)
}

func TestAutonomousAgentOutsideAllowedNamespacesIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous, func(hub, _ *facets.Options) {
		hub.Mapping = mapping.ByNamespace{Allowed: func(namespace string) bool { return namespace != "berlin" }}
	})
	hears(t, p.spoke.Applications, p.spokeAPI.put(onSpoke()))
	p.onSpoke("AppProject", teamProject("team", "*"))
	for facet, key := range map[converge.Facet]converge.Key{facets.Application: "guestbook", facets.AppProject: "team"} {
		err := p.sends(facet, key)
		require.ErrorIs(t, err, converge.ErrRefused)
		require.ErrorContains(t, err, `namespace "berlin": add it to the principal's --allowed-namespaces`)
	}
	require.Empty(t, p.hubAPI.done())
}

// A hub that has not what replica objects were made of may be one that is not restored yet, or the wrong one: nothing goes for
// that.
func TestReplicaOfAnotherHubIsNotDeleted(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) {
		spoke.AdoptionPolicy.Origin = func() string { return "new" }
	})
	there := onSpoke(foreground)
	there.Annotations = from("on-hub", argocd.AnnotationPrincipalUID, "old")
	hears(t, p.spoke.Applications, p.spokeAPI.put(there))
	replica := p.there.Replicas[facets.Application]
	_, err := replica.Remove(t.Context(), "guestbook", "on-hub")
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "its source object was on another hub, and this hub does not have it")
	require.Empty(t, p.spokeAPI.done())

	delete(there.Annotations, argocd.AnnotationPrincipalUID) // as people are told
	hears(t, p.spoke.Applications, p.spokeAPI.put(there))
	_, err = replica.Remove(t.Context(), "guestbook", "on-hub")
	require.NoError(t, err)
	require.Nil(t, p.spokeAPI.get("guestbook"))
}

// If the hub has it after all, by the same UID, it sends it again, since it is told of something stale; and the replica object
// becomes this hub's.
func TestReplicaOfAnotherHubIsTakenOver(t *testing.T) {
	t.Parallel()
	origin := "old"
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) {
		spoke.AdoptionPolicy.Origin = func() string { return origin }
	})
	hears(t, p.hub.Applications, p.hubAPI.put(onHub()))
	p.onHub("AppProject", teamProject("team", "*"))
	p.onHub("Secret", aSecret("repo", argocd.SecretTypeRepository, "team"))
	keys := map[converge.Facet]converge.Key{facets.Application: "guestbook", facets.AppProject: "team", facets.Repository: "repo"}
	for f, key := range keys {
		require.NoError(t, p.sends(f, key))
		require.False(t, p.there.Replicas[f].Stale(key))
	}
	origin = "new"
	for f, key := range keys {
		object, ok := p.here.Sources[f].Project(key)
		require.True(t, ok)
		require.True(t, p.there.Replicas[f].Stale(key))
		_, err := p.there.Replicas[f].Remove(t.Context(), key, object.UID)
		require.ErrorIs(t, err, converge.ErrRefused)
		require.ErrorContains(t, err, "its source object was on another hub, and this hub does not have it")

		require.NoError(t, p.sends(f, key))
		require.False(t, p.there.Replicas[f].Stale(key))
		_, err = p.there.Replicas[f].Remove(t.Context(), key, object.UID)
		require.NoError(t, err)
		require.Zero(t, p.there.Replicas[f].Held(key))
	}
}

// Nobody works off the finalizers that somebody gives to what shows a project.
func TestMirroredAppProjectHasNoFinalizers(t *testing.T) {
	t.Parallel()
	for name, deleting := range map[string]bool{"kept": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Autonomous)
			p.onSpoke("AppProject", teamProject("team", "*"))
			require.NoError(t, p.sends(facets.AppProject, "team"))
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
			require.Contains(t, p.hubAPI.done(), "patch to []")
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
			hears(t, p.spoke.Applications, p.spokeAPI.put(there))
			_, err := p.there.Replicas[facets.Application].Apply(t.Context(), "guestbook", deletion(t, c.finalizers...))
			if c.refused {
				require.ErrorIs(t, err, converge.ErrRefused)
				require.ErrorContains(t, err, "nothing says whose it is: delete it there if it is to go")
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, p.spokeAPI.done())
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
		hears(t, p.spoke.Applications, p.spokeAPI.put(there))
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
		require.Empty(t, p.spokeAPI.done())
	}
}

// Without a UID it would be nobody's copy, and stay for ever.
func TestApplicationWithoutUIDIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	hears(t, p.hub.Applications, p.hubAPI.put(onHub()))
	object := original(t, p)
	object.UID = ""
	_, err := p.there.Replicas[facets.Application].Apply(t.Context(), "guestbook", object)
	require.ErrorIs(t, err, converge.ErrRefused)
	require.Empty(t, p.spokeAPI.done())
}
