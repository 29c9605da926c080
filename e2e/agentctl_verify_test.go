package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// A comparison says that a live agent is equal, and names what is not once nobody mends it.
func TestVerifyNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	s := newSite(t, "verified", lab.AgentOptions{}).connected(t)
	same, changed, gone := s.newTwin("same").create(t), s.newTwin("changed").create(t), s.newTwin("gone").create(t)
	same.arrives(t)
	changed.arrives(t)
	gone.arrives(t)
	a := admin{hub: lab.Namespace, spoke: s.name, environment: []string{"KUBECONFIG=" + shared.Kubeconfigs(), "ARGOCD_AGENT_AGENT_NAMESPACE=" + s.name}}
	command := "verify " + s.name + " --agent-context spoke-b"
	require.Contains(t, a.does(t, command).output, "agent "+s.name+" (managed): equal")
	stopped(t, s.agent.Stop)
	changed.spoke.edit(t, spec("elsewhere", "source", "path"))
	gone.spoke.delete(t)
	a.fails(t, command+" --wait 5s", "hub and agents differ: problems found: ")
	text := a.shows(t, command+" --wait 5s")
	require.Regexp(t, `(?m)^  application +changed\S* +the copy differs$`, text)
	require.Regexp(t, `(?m)^  application +gone\S* +the copy is missing$`, text)
	require.NotRegexp(t, `(?m)^  application +same\S* `, text)
	unknown := unique("unknown")
	a.fails(t, "verify "+unknown+" --agent-context spoke-b", "agent "+unknown+": the hub (context hub) does not know it")
	a.fails(t, "verify "+s.name+" --agent-context nowhere", "there is no context")
	a.fails(t, "verify "+s.name, "give --agent-context, or its context by the config file")
}
