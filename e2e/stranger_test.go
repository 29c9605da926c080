package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

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
