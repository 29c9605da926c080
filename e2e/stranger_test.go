package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// agentAnnotation, on a spoke, is the agent that a replica object is for.
const agentAnnotation = ownPrefix + "agent"

// A certificate of the hub's own CA, for a name that the hub has never heard of, gets into a cluster by mistake. The hub has nothing
// for that name, but nor does it want all that is there deleted.
func TestAgentThatHubDoesNotKnowDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "home", lab.AgentOptions{}).connected(t)
	app := s.newTwin("app").create(t)
	replica := app.arrives(t)
	stopped(t, s.agent.Stop)

	name := unique("stranger")
	stranger, err := shared.NewAgent(t.Context(), lab.AgentOptions{Spoke: "b", Name: name, Args: []string{"--namespace=" + s.name}})
	require.NoError(t, err)
	start(t, stranger.Start)
	t.Cleanup(func() { stopped(t, stranger.Stop) })
	says(t, stranger, `the hub has no cluster Secret, no namespace and no Application for agent \"`+name+`\"`,
		"argocd-agentctl agent create "+name)
	says(t, shared.Principal, "agent="+name)
	app.spoke.remains(t, replica)
}

// Whoever creates an agent on the hub after it was started need not restart it.
func TestAgentConnectsOnceHubKnowsIt(t *testing.T) {
	t.Parallel()
	name := unique("newcomer")
	require.NoError(t, shared.Spoke("b").Apply(t.Context(), namespace(name)))
	agent, err := shared.NewAgent(t.Context(), lab.AgentOptions{Spoke: "b", Name: name, Args: []string{"--namespace=" + name}})
	require.NoError(t, err)
	start(t, agent.Start)
	t.Cleanup(func() { stopped(t, agent.Stop) })
	says(t, agent, "argocd-agentctl agent create "+name)
	_, err = shared.Agentctl(t.Context(), "agent", "create", name, "--upsert")
	require.NoError(t, err)
	s := &site{name: name, spoke: shared.Spoke("b"), agent: agent}
	s.connected(t)
}

// A certificate for another agent gets into a cluster by mistake. That agent takes nothing of what is there for its own, until somebody
// hands it over.
func TestAgentLeavesAnotherAgentsReplicasAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, "owner", lab.AgentOptions{}).connected(t)
	app := s.newTwin("app").create(t)
	replica := app.arrives(t, annotated(agentAnnotation, s.name))
	stopped(t, s.agent.Stop)

	mistaken := newSite(t, "mistaken", lab.AgentOptions{Args: []string{"--namespace=" + s.name}}).connected(t)
	found := "Found replica objects for another agent"
	says(t, mistaken.agent, found, "other_agent="+s.name)
	mark := mistaken.agent.Mark()
	mistaken.agent.Principal.Reset()
	saysNow(t, mistaken.agent, mark, lab.ConnectedAgentLine)
	require.Equal(t, 1, strings.Count(logSince(t, mistaken.agent.LogPath(), 0), found))
	same := mistaken.newTwin("app")
	same.declared.Name = app.declared.Name
	same.hub, same.spoke = side{shared.Hub, argocd.Named(mistaken.name, app.declared.Name)}, app.spoke
	same.create(t)
	same.hub.becomes(t, refused("replica object for another agent", s.name, "certificate"))
	app.spoke.remains(t, replica)

	app.spoke.edit(t, func(object *unstructured.Unstructured) {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", agentAnnotation)
	})
	same.arrives(t, annotated(agentAnnotation, mistaken.name))
}
