package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// newHomeless makes a site of an autonomous agent that has no namespace on the hub, and an Application there. The principal may
// create namespaces that match this, with a label.
func newHomeless(t *testing.T, name, pattern string) (s *site, there side, app *twin) {
	t.Helper()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{
		"--namespace-create-enable", "--namespace-create-pattern=" + pattern, "--namespace-create-labels=made-by=us",
	}})
	s = prepareSite(t, unique(name), lab.AgentOptions{Principal: principal, Mode: "autonomous"})
	there = namespaceOf(shared.Hub, s.name) // the lab has made it with the agent
	there.delete(t)
	there.vanishes(t)
	start(t, s.agent.Start)
	return s, there, s.newOwn("guestbook").createOnSpoke(t)
}

func TestPrincipalCreatesNamespaceForAutonomousAgent(t *testing.T) {
	t.Parallel()
	_, there, app := newHomeless(t, "welcome", "^welcome")
	app.shown(t)
	there.becomes(t, labelled("made-by", "us"))
}

func TestPrincipalCreatesNoNamespaceOutsidePattern(t *testing.T) {
	t.Parallel()
	s, there, app := newHomeless(t, "unwelcome", "^welcome")
	app.spoke.becomes(t, refused("The hub refuses this application: ", `there is no namespace "`+s.name+`"`,
		"create it on the hub", "--namespace-create-pattern"))
	require.False(t, there.exists(t))
}
