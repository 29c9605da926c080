package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// Mistakes that everybody makes once say what is wrong, until it is corrected.
func TestApplicationOfNoAgentSaysWhy(t *testing.T) {
	t.Parallel()
	s, other := newSite(t, "asked", lab.AgentOptions{}).connected(t), newSite(t, "meant", lab.AgentOptions{Spoke: "a"}).connected(t)
	nobody := unique("nobody")
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(nobody)))

	habit := s.withArgoCD("habit").create(t) // of who comes from a hub that pushes
	lost := s.within(nobody, "lost").create(t, destined("in-cluster"))
	crossed := s.newTwin("crossed").create(t, destined(other.name))
	habit.hub.becomes(t, refused("no agent gets this application", `create it in namespace "`+s.name+`"`))
	lost.hub.becomes(t, refused("no agent gets this application", `no agent "`+nobody+`"`))
	crossed.hub.becomes(t, refused(`it runs on agent "`+s.name+`"`, `not on agent "`+other.name+`"`))
	crossed.arrives(t)
	for _, app := range []*twin{habit, lost, crossed} {
		requireOneEvent(t, app)
	}

	habit.hub.edit(t, destined("in-cluster"))
	habit.hub.becomes(t, accepted)
	crossed.hub.edit(t, destined(s.name))
	crossed.hub.becomes(t, accepted)
	startSite(t, nobody, lab.AgentOptions{})
	lost.hub.becomes(t, accepted)
}

// requireOneEvent waits for the Event about an Application of no agent, and fails if there are several.
func requireOneEvent(t *testing.T, app *twin) {
	t.Helper()
	events := core(app.hub.cluster, "events", app.hub.selection.Namespace, "").selection
	count := func() (n int) {
		all, err := app.hub.cluster.List(t.Context(), events)
		require.NoError(t, err)
		for _, e := range all {
			if text(&e, "reason") == "NoAgent" && text(&e, "involvedObject", "name") == app.hub.selection.Name {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return count() > 0 }, timeout, 100*time.Millisecond)
	require.Equal(t, 1, count())
}
