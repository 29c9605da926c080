package hub

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

func TestIgnoredApplicationsAreLoggedWithReason(t *testing.T) {
	t.Parallel()
	h, log := aHubThatMaps(t, byDestination())
	h.connects("paris", facets.Managed)
	var r revision
	h.becomes(t, &r, "team-a/early", "berlim")
	require.Empty(t, lines(log), "who knows what agents there are")
	h.StartupDone()
	told := lines(log)
	require.Len(t, told, 1)
	require.Contains(t, told[0], "Ignored Applications whose destination is no agent")
	require.Contains(t, told[0], "destination=berlim application=team-a/early")
	h.becomes(t, &r, "team-b/late", "berlim")
	require.Empty(t, lines(log), "it is told")

	h.becomes(t, &r, "kitchen/shop", "berlin")
	told = lines(log)
	require.Len(t, told, 1)
	require.Contains(t, told[0], "Ignored Applications in a namespace that is not allowed; add it to --allowed-namespaces")
	require.Contains(t, told[0], "namespace=kitchen application=kitchen/shop agent=berlin")
	h.becomes(t, &r, "kitchen/other", "paris")
	require.Empty(t, lines(log), "it is told")

	h.becomes(t, &r, "team-a/shop", "berlin")
	h.becomes(t, &r, "argocd/shop", "paris")
	h.becomes(t, &r, "cellar/own", "in-cluster")
	h.becomes(t, &r, "cellar/left", "berlin", ignored)
	h.becomes(t, &r, "rome/shop", "rome", shown)
	require.Empty(t, lines(log), "these are shared, or nobody's")
}

// Who makes an Application on the hub for an agent whose applications are its own would wait for ever.
func TestHubApplicationsForAutonomousAgentsAreLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hub func(t *testing.T) (*Hub, *bytes.Buffer)
		at  string
	}{
		"by namespace":   {aHub, "rome"},
		"by destination": {func(t *testing.T) (*Hub, *bytes.Buffer) { return aHubThatMaps(t, byDestination()) }, "team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, log := c.hub(t)
			h.connects("rome", facets.Autonomous)
			h.StartupDone()
			var r revision
			h.becomes(t, &r, c.at+"/shown", "rome", shown)
			require.Empty(t, lines(log))
			h.becomes(t, &r, c.at+"/mine", "rome")
			told := lines(log)
			require.Len(t, told, 1)
			require.Contains(t, told[0], "Ignored Applications of an autonomous agent; define them on its cluster")
			require.Contains(t, told[0], "agent=rome application="+c.at+"/mine")
			h.becomes(t, &r, c.at+"/more", "rome")
			require.Empty(t, lines(log), "it is told")

			h, log = c.hub(t)
			h.StartupDone()
			h.becomes(t, &r, c.at+"/mine", "rome")
			lines(log)
			h.connects("rome", facets.Autonomous)
			told = lines(log)
			require.Len(t, told, 1, "it was there before the agent")
			require.Contains(t, told[0], "Ignored Applications of an autonomous agent")
		})
	}
}

// Where agents have namespaces of their own, other namespaces are the hub's.
func TestOtherNamespacesAreNotLogged(t *testing.T) {
	t.Parallel()
	h, log := aHub(t)
	h.StartupDone()
	var r revision
	h.becomes(t, &r, "kitchen/shop", "in-cluster")
	require.Empty(t, lines(log))
}
