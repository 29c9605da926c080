package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// unchanged fails if an object is another one than before, or says something else in what people write.
func (s side) unchanged(t *testing.T, before *unstructured.Unstructured) {
	t.Helper()
	s.remains(t, before)
	now := s.get(t)
	require.Equal(t, before.Object["spec"], now.Object["spec"])
	require.Equal(t, before.GetFinalizers(), now.GetFinalizers())
}

// again starts a site's agent anew, in another mode.
func (s *site) again(t *testing.T, mode string, options lab.AgentOptions) *site {
	t.Helper()
	stopped(t, s.agent.Stop)
	options.Mode = mode
	return startSite(t, s.name, options)
}

// Somebody forgets the flag, and an autonomous agent is a managed one for a while: what it has is still its own, and what the
// hub shows of it is not given to it as the hub's.
func TestAutonomousAgentStartedAsManagedLosesNothing(t *testing.T) {
	t.Parallel()
	s, app := newAutonomous(t, "forgotten", lab.AgentOptions{}, finalize(cascadeFinalizer), spec("team", "project"))
	shown := app.shown(t, has(s.name+"-team", "spec", "project"))
	own := app.spoke.get(t)
	managed := s.again(t, "managed", lab.AgentOptions{}).connected(t)
	hubs := managed.newTwin("hubs").create(t)
	hubs.arrives(t)
	app.spoke.unchanged(t, own)
	app.hub.unchanged(t, shown)

	managed.again(t, "autonomous", lab.AgentOptions{}).connected(t)
	app.spoke.edit(t, spec("v2", "source", "targetRevision"))
	app.shown(t, has("v2", "spec", "source", "targetRevision"), has(s.name+"-team", "spec", "project"))
}

// Nor does a managed agent that says that it is autonomous get hold of what the hub has.
func TestManagedAgentStartedAsAutonomousTakesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "pretending", lab.AgentOptions{}).connected(t)
	app := s.newTwin("app").create(t, finalize(cascadeFinalizer))
	app.arrives(t)
	before := app.hub.get(t)
	stopped(t, s.agent.Stop)
	app.spoke.edit(t, spec("https://evil.example.com", "source", "repoURL"))
	autonomous := s.again(t, "autonomous", lab.AgentOptions{}).connected(t)
	app.spoke.becomes(t, refused("an application of this name is there already and may not be adopted"))
	app.hub.unchanged(t, before)

	autonomous.again(t, "managed", lab.AgentOptions{}).connected(t)
	app.arrives(t, has(shared.Git.URL, "spec", "source", "repoURL"))
}

// Who has the key of an agent cannot choose its mode where the hub has chosen.
func TestClusterSecretLabelFixesAgentMode(t *testing.T) {
	t.Parallel()
	name := unique("settled")
	label := "--label=argocd-agent.argoproj-labs.io/agent-mode="
	s := prepareSite(t, name, lab.AgentOptions{Mode: "managed"})
	create := func(mode string) {
		_, err := shared.Agentctl(t.Context(), "agent", "create", name, "--upsert", "--resource-proxy-server="+shared.Kubeproxy.Address, label+mode)
		require.NoError(t, err)
	}
	create("autonomous")
	require.NoError(t, s.agent.Start(t.Context()))
	says(t, s.agent, `of its cluster Secret on the hub says \"autonomous\": set --agent-mode to that, or change the label`)
	create("managed")
	s.connected(t)
}
