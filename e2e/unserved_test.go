package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	crossed.hub.becomes(t, refused("no agent gets this application", `namespace is that of agent "`+s.name+`"`, `destination names agent "`+other.name+`"`))
	require.False(t, crossed.spoke.exists(t), "nobody knows which of the two is meant")
	for _, app := range []*twin{habit, lost, crossed} {
		requireOneEvent(t, app)
	}

	habit.hub.edit(t, destined("in-cluster"))
	habit.hub.becomes(t, accepted)
	crossed.hub.edit(t, destined(s.name))
	crossed.hub.becomes(t, accepted)
	was := crossed.arrives(t)
	crossed.hub.edit(t, destined(other.name))
	crossed.hub.becomes(t, refused("no agent gets this application"))
	crossed.spoke.remains(t, was)
	crossed.hub.edit(t, destined(s.name))
	crossed.hub.becomes(t, accepted)
	startSite(t, nobody, lab.AgentOptions{})
	lost.hub.becomes(t, accepted)
}

// An Application of an agent that is away says so, and its deletion what it waits for, until the agent is back; or that it has not come
// yet, as after a restart of the principal.
func TestApplicationOfAnAgentThatIsAwaySaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t, "missed", lab.AgentOptions{}).connected(t)
	late := prepareSite(t, unique("late"), lab.AgentOptions{})
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(late.name)))
	kept, deleted, waiting := s.newTwin("kept"), s.newTwin("deleted"), late.newTwin("waiting")
	kept.create(t).arrives(t)
	deleted.create(t, finalize("resources-finalizer.argocd.argoproj.io")).arrives(t)
	waiting.create(t)
	deleted.prunes(t)
	stopped(t, s.agent.Stop)
	deleted.hub.delete(t)

	becomesInTime(t, kept.hub, refused(`agent "`+s.name+`" is not connected: what is shown is the last known state`))
	becomesInTime(t, deleted.hub, refused(`agent "`+s.name+`" is not connected, and this deletion waits for it`))
	becomesInTime(t, waiting.hub, refused(`agent "`+late.name+`" is not connected`))

	require.NoError(t, s.agent.Start(t.Context()))
	kept.hub.becomes(t, accepted)
	deleted.hub.vanishes(t)
	require.NoError(t, late.agent.Start(t.Context()))
	waiting.hub.becomes(t, accepted)
	waiting.arrives(t)
}

// becomesInTime is becomes for what the principal says only after a minute.
func becomesInTime(t *testing.T, s side, want condition) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
	defer cancel()
	_, err := s.cluster.Wait(ctx, s.selection, func(object *unstructured.Unstructured) bool { return object != nil && want(object) })
	require.NoError(t, err)
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
