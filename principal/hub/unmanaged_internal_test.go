package hub

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

func TestIgnoredApplicationsAreLoggedWithReason(t *testing.T) {
	t.Parallel()
	h, log := newTestHubWithMapping(t, byDestination())
	h.connect("paris", facets.Managed)
	var r revision
	h.writeApplication(t, &r, "team-a/early", "berlim")
	require.Empty(t, lines(log), "who knows what agents there are")
	h.StartupDone()
	logged := lines(log)
	require.Len(t, logged, 1)
	require.Contains(t, logged[0], "Ignored Applications whose destination is no agent")
	require.Contains(t, logged[0], "destination=berlim application=team-a/early")
	h.writeApplication(t, &r, "team-b/late", "berlim")
	require.Empty(t, lines(log), "logged already")

	h.writeApplication(t, &r, "kitchen/shop", "berlin")
	logged = lines(log)
	require.Len(t, logged, 1)
	require.Contains(t, logged[0], "Ignored Applications in a namespace that is not allowed; add it to --allowed-namespaces")
	require.Contains(t, logged[0], "namespace=kitchen application=kitchen/shop agent=berlin")
	h.writeApplication(t, &r, "kitchen/other", "paris")
	require.Empty(t, lines(log), "logged already")

	h.writeApplication(t, &r, "team-a/shop", "berlin")
	h.writeApplication(t, &r, "argocd/shop", "paris")
	h.writeApplication(t, &r, "cellar/own", "in-cluster")
	h.writeApplication(t, &r, "cellar/left", "berlin", ignored)
	h.writeApplication(t, &r, "rome/shop", "rome", shown)
	require.Empty(t, lines(log), "these are shared, or nobody's")
}

// Who makes an Application on the hub for an agent whose applications are its own would wait for ever.
func TestHubApplicationsForAutonomousAgentsAreLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hub func(t *testing.T) (*Hub, *bytes.Buffer)
		at  string
	}{
		"by namespace":   {newTestHub, "rome"},
		"by destination": {func(t *testing.T) (*Hub, *bytes.Buffer) { return newTestHubWithMapping(t, byDestination()) }, "team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, log := c.hub(t)
			h.connect("rome", facets.Autonomous)
			h.StartupDone()
			var r revision
			h.writeApplication(t, &r, c.at+"/shown", "rome", shown)
			require.Empty(t, lines(log))
			h.writeApplication(t, &r, c.at+"/mine", "rome")
			logged := lines(log)
			require.Len(t, logged, 1)
			require.Contains(t, logged[0], "Ignored Applications of an autonomous agent; define them on its cluster")
			require.Contains(t, logged[0], "agent=rome application="+c.at+"/mine")
			h.writeApplication(t, &r, c.at+"/more", "rome")
			require.Empty(t, lines(log), "logged already")

			h, log = c.hub(t)
			h.StartupDone()
			h.writeApplication(t, &r, c.at+"/mine", "rome")
			lines(log)
			h.connect("rome", facets.Autonomous)
			logged = lines(log)
			require.Len(t, logged, 1, "it was there before the agent")
			require.Contains(t, logged[0], "Ignored Applications of an autonomous agent")
		})
	}
}

// Where agents have namespaces of their own, other namespaces are the hub's.
func TestOtherNamespacesAreNotLogged(t *testing.T) {
	t.Parallel()
	h, log := newTestHub(t)
	h.StartupDone()
	var r revision
	h.writeApplication(t, &r, "kitchen/shop", "in-cluster")
	require.Empty(t, lines(log))
}
