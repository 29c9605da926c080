package facets_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// projectsOf returns the half of a facet that shows the projects of an agent on the hub.
func (p *pair) projectsOf(agent string) converge.Replica {
	return p.hub.Share(agent, facets.Autonomous).Replicas[facets.AppProject]
}

// The projects of "a" called "b-c" and of "a-b" called "c" would both be "a-b-c" on the hub.
func TestCollidingAppProjectNamesAreRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	p.onSpoke("AppProject", teamProject("c", "*"))
	object, ok := p.there.Sources[facets.AppProject].Project("c")
	require.True(t, ok)
	first, second := p.projectsOf("a"), p.projectsOf("a-b")
	_, err := first.Apply(t.Context(), "b-c", object)
	require.NoError(t, err)
	before := p.hubAPI.object("AppProject", "a-b-c")
	_, err = second.Apply(t.Context(), "c", object)
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, `AppProject "a-b-c" is the replica object of another agent, "a": rename one of the two`)
	held, err := second.Remove(t.Context(), "c", "")
	require.NoError(t, err)
	require.Zero(t, held)
	require.Zero(t, second.Held("c"))
	for key := range second.All() {
		t.Error("the other agent's is taken for a replica object of this one", key)
	}
	require.Equal(t, before, p.hubAPI.object("AppProject", "a-b-c"))

	p.onHub("AppProject", teamProject("a-own", "*"))
	_, err = first.Apply(t.Context(), "own", object)
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, `there is AppProject "a-own" already, which is no replica object: rename or delete one of the two`)
}

// A project that somebody made on the hub is the hub's, also if it says the same as the agent's. Otherwise it would go with that.
func TestHubAppProjectIsNeverAdopted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		refused     bool
	}{
		"somebody made it":                      {nil, true},
		"somebody made it, with annotations":    {map[string]string{"mine": "yes"}, true},
		"it says to be the agent's":             {map[string]string{argocd.AnnotationAgent: "berlin"}, false},
		"it says to be another's":               {map[string]string{argocd.AnnotationAgent: "paris"}, true},
		"it says to be made from somebody else": {map[string]string{argocd.AnnotationAgent: "berlin", argocd.AnnotationSourceUID: "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Autonomous)
			p.onSpoke("AppProject", teamProject("team", "*"))
			require.NoError(t, p.send(facets.AppProject, "team"))
			same := *p.hubAPI.object("AppProject", "berlin-team")
			same.UID, same.Annotations = "somebodys", c.annotations
			before := p.onHub("AppProject", same)
			err := p.send(facets.AppProject, "team")
			is := p.hubAPI.object("AppProject", "berlin-team")
			if !c.refused {
				require.NoError(t, err)
				require.Equal(t, "berlin", is.Annotations[argocd.AnnotationAgent])
				return
			}
			require.ErrorIs(t, err, converge.ErrRefused)
			_, err = p.projectsOf("berlin").Remove(t.Context(), "team", "")
			require.NoError(t, err)
			require.Equal(t, before, p.hubAPI.object("AppProject", "berlin-team"))
		})
	}
}

func TestAppProjectNameTooLongIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	longest := strings.Repeat("x", 253-len("berlin-"))
	p.onSpoke("AppProject", teamProject(longest, "*"))
	require.NoError(t, p.send(facets.AppProject, converge.Key(longest)))
	require.NotNil(t, p.hubAPI.object("AppProject", "berlin-"+longest))

	p.onSpoke("AppProject", teamProject(longest+"y", "*"))
	err := p.send(facets.AppProject, converge.Key(longest+"y"))
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "which is longer than 253 characters: give it a shorter name")
	held, err := p.here.Replicas[facets.AppProject].Remove(t.Context(), converge.Key(longest+"y"), "")
	require.NoError(t, err)
	require.Zero(t, held)
}
