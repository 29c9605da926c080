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

// An agent cannot take the names of one whose name begins with its own: "prod" and its project "eu-x" those of "prod-eu" and "x".
// It does not matter who comes first, nor that an honest one has such a name.
func TestProjectNamesOfAnAgentWithALongerNameAreRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	known := map[string]bool{"prod": true}
	p.hub.HasAgent = func(agent string) bool { return known[agent] }
	p.onSpoke("AppProject", teamProject("x", "*"))
	object, ok := p.there.Sources[facets.AppProject].Project("x")
	require.True(t, ok)
	short, long, longest := p.projectsOf("prod"), p.projectsOf("prod-eu"), p.projectsOf("prod-eu-west")
	apply := func(by converge.Replica, key converge.Key) error {
		_, err := by.Apply(t.Context(), key, object)
		if stored := p.hubAPI.object("AppProject", "prod-eu-x"); stored != nil {
			recordObject(t, p.hub.Cluster, stored)
		}
		return err
	}
	require.NoError(t, apply(short, "eu-x"), "nobody knows of prod-eu")
	held := short.Held("eu-x")
	known["prod-eu"], known["prod-eu-west"] = true, true
	err := apply(short, "eu-x")
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, `would be "prod-eu-x", and such names are for projects of agent "prod-eu": rename the project`)
	require.Equal(t, held.UID, short.Held("eu-x").UID, "it is shown as it was until the name is needed, or the agent withdraws it")
	require.NoError(t, apply(long, "x"))
	require.Equal(t, "prod-eu", p.hubAPI.object("AppProject", "prod-eu-x").Annotations[argocd.AnnotationAgent])
	require.ErrorIs(t, apply(short, "eu-x"), converge.ErrRefused)
	_, err = short.Remove(t.Context(), "eu-x", held.UID)
	require.NoError(t, err)
	require.NotNil(t, p.hubAPI.object("AppProject", "prod-eu-x"), "it is not prod's any more")

	require.ErrorIs(t, apply(short, "eu-west-y"), converge.ErrRefused)
	require.ErrorIs(t, apply(long, "west-y"), converge.ErrRefused)
	require.NoError(t, apply(longest, "y"))
	require.NoError(t, apply(short, "eu"), "prod-eu has no project without a name")
	require.NoError(t, apply(short, "europe"))
	require.NoError(t, apply(short, "us-x"))
}

// Nor can its applications be of a project of that name.
func TestApplicationOfAProjectOfAnAgentWithALongerNameIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	p.hub.HasAgent = func(agent string) bool { return agent == "berlin-east" }
	p.here = p.hub.Share("berlin", facets.Autonomous)
	err := p.lie(facets.Application, `{"spec":{"project":"east-x"}}`)
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, `such names are for projects of agent "berlin-east"`)
	require.Nil(t, p.hubAPI.get("shop"))
	require.NoError(t, p.lie(facets.Application, `{"spec":{"project":"own"}}`))
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
