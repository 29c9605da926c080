package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// What an agent's flag says holds for all of its applications, unless one says something else for itself.
func TestAdoptionPolicyNever(t *testing.T) {
	t.Parallel()
	s := newSite(t, "adopting-nothing", lab.AgentOptions{Args: []string{"--adoption-policy=never"}}).connected(t)
	app := s.newTwin("taken")
	create(t, app.spoke.cluster, app.spoke.selection, app.onSpoke())
	before := app.spoke.get(t)
	app.create(t)
	app.hub.becomes(t, refused("may not be adopted"))
	require.Equal(t, before.GetResourceVersion(), app.spoke.get(t).GetResourceVersion())

	app.spoke.edit(t, annotate("argocd.argoproj.io/adoption-policy", "always"))
	app.hub.edit(t, label("team", "blue")) // it is tried again when there is something new
	app.arrives(t, labelled("team", "blue"))
	app.spoke.remains(t, before)
	app.hub.becomes(t, accepted)
}

func TestSourceUIDMismatchPolicyUpsert(t *testing.T) {
	t.Parallel()
	s := newSite(t, "upserting", lab.AgentOptions{Args: []string{"--source-uid-mismatch-policy=upsert"}}).connected(t)
	app := s.newTwin("replaced").create(t)
	before := app.arrives(t)
	stopped(t, s.agent.Stop)
	app.hub.delete(t)
	app.hub.vanishes(t)
	app.create(t, label("generation", "second"))
	start(t, s.agent.Start)
	app.arrives(t, labelled("generation", "second"))
	app.spoke.remains(t, before)
}

func TestOnApplicationRecreateResync(t *testing.T) {
	t.Parallel()
	s := newSite(t, "resyncing", lab.AgentOptions{Args: []string{"--on-application-recreate=resync"}}).connected(t)
	app := s.newTwin("again").create(t)
	before := app.arrives(t, absent("operation"))
	app.spoke.delete(t)
	app.arrives(t, anew(before), func(object *unstructured.Unstructured) bool { return !idle(object) })
}
