package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// stuckManifest is an Application whose sync never ends by itself: before the last resource, a Deployment must become
// healthy for which there is no node.
const stuckManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: stuck, annotations: {argocd.argoproj.io/sync-wave: "0"}}
spec:
  selector: {matchLabels: {app: stuck}}
  template:
    metadata: {labels: {app: stuck}}
    spec:
      nodeSelector: {example.com/there-is: none}
      containers: [{name: web, image: any}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, annotations: {argocd.argoproj.io/sync-wave: "1"}}
`

// getsStuck has the Application be one that is stuck when it is synced. No two tests may ask for that at the same time:
// the repository takes one commit after the other.
func (a *twin) getsStuck(t *testing.T) {
	t.Helper()
	a.declared.Path = unique("stuck")
	_, err := shared.Git.Commit(t.Context(), "Something that never gets well", map[string]string{
		a.declared.Path + "/stuck.yaml": stuckManifest,
	})
	require.NoError(t, err)
}

// runs counts the syncs that succeeded, as Argo CD's history does.
func runs(object *unstructured.Unstructured) int {
	history, _, _ := unstructured.NestedSlice(object.Object, "status", "history")
	return len(history)
}

func ran(times int) condition {
	return func(object *unstructured.Unstructured) bool { return runs(object) == times }
}

func phase(name string) condition { return has(name, "status", "operationState", "phase") }

func TestSync(t *testing.T) {
	t.Parallel()
	app := newTwin("a", "clicked").create(t)
	app.arrives(t)
	starts := watch(t, app.spoke)
	for n := range 3 {
		clickSync(t, app)
		app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(n+1))
	}
	app.configMap().becomes(t)
	require.Len(t, starts.distinct(startOf), 3)
	// Once the hub has taken back what was asked, nothing of it is left on the spoke.
	app.spoke.becomes(t, idle, annotated(ownPrefix+"intent", ""), ran(3))
}

// A sync that is asked for before the Application has got to the spoke at all is done there.
func TestSyncInNewApplication(t *testing.T) {
	t.Parallel()
	app := newTwin("a", "eager").create(t, func(object *unstructured.Unstructured) {
		object.Object["operation"] = operation("eager")
	})
	app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(1))
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"normal", "hard"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			app := newTwin("a", "refreshed-"+kind).create(t)
			app.hub.becomes(t, has("OutOfSync", "status", "sync", "status"))
			asked := watch(t, app.spoke)
			clickRefresh(t, app, kind)
			require.Equal(t, []string{kind}, asked.distinct(func(object *unstructured.Unstructured) string {
				return object.GetAnnotations()[refreshAnnotation]
			}))
			for _, side := range []side{app.hub, app.spoke} {
				side.becomes(t, annotated(refreshAnnotation, ""), annotated(ownPrefix+"intent", ""),
					annotated("argocd.argoproj.io/hydrate", ""))
			}
		})
	}
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	app := newTwin("a", "terminated")
	app.getsStuck(t)
	app.create(t)
	app.arrives(t)
	clickSync(t, app)
	running := app.hub.becomes(t, phase("Running"))

	clickTerminate(t, app)
	over := app.hub.becomes(t, phase("Failed"), idle)
	require.Equal(t, startOf(running), startOf(over))
	require.Contains(t, text(over, "status", "operationState", "message"), "terminated")
	require.Equal(t, "Failed", text(app.spoke.get(t), "status", "operationState", "phase"))

	// It can be synced again after.
	clickSync(t, app)
	app.hub.becomes(t, phase("Running")) // perhaps in the second in which the first one began
	clickTerminate(t, app)
	app.hub.becomes(t, phase("Failed"), idle)
}

func TestSyncAndRefreshWhileDisconnectedRunOnce(t *testing.T) {
	synced := newTwin("b", "patient").create(t)
	synced.arrives(t)
	starts := watch(t, synced.spoke)
	disconnect(t, "b")
	clickSync(t, synced)
	reconnect(t, "b")
	synced.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(1))

	disconnect(t, "b")
	refreshes := watch(t, synced.spoke)
	synced.hub.edit(t, annotate(refreshAnnotation, "hard")) // argocd-server would wait for it to be done
	reconnect(t, "b")
	synced.hub.becomes(t, annotated(refreshAnnotation, ""))
	require.Equal(t, []string{"hard"}, refreshes.distinct(func(object *unstructured.Unstructured) string {
		return object.GetAnnotations()[refreshAnnotation]
	}))
	require.Len(t, starts.distinct(startOf), 1)
	synced.spoke.becomes(t, ran(1))
}

func TestTerminateWhileDisconnected(t *testing.T) {
	app := newTwin("b", "terminated-meanwhile")
	app.getsStuck(t)
	app.create(t)
	app.arrives(t)
	clickSync(t, app)
	app.hub.becomes(t, phase("Running"))
	disconnect(t, "b")
	clickTerminate(t, app)
	reconnect(t, "b")
	app.hub.becomes(t, phase("Failed"), idle)
}

// Whoever is restarted, and whenever: what is asked for once is done once.
func TestSyncRunsOnceAcrossRestarts(t *testing.T) {
	agent, principal := shared.Agent("b"), shared.Principal
	restartAgent := func() { agent.Kill(); start(t, agent.Start) }
	restartPrincipal := func() { principal.Kill(); start(t, principal.Start) }
	app := newTwin("b", "once").create(t)
	app.arrives(t)
	starts := watch(t, app.spoke)
	for n, c := range []struct {
		name          string
		before, after func()
	}{
		{"principal down", principal.Kill, func() { start(t, principal.Start) }},
		{"agent down", agent.Kill, func() { start(t, agent.Start) }},
		{"principal restarts at once", func() {}, restartPrincipal},
		{"agent restarts at once", func() {}, restartAgent},
		{"both restart when it was taken", func() {}, func() {
			app.spoke.becomes(t, func(*unstructured.Unstructured) bool { return len(starts.distinct(startOf)) == 5 })
			restartPrincipal()
			restartAgent()
		}},
		{"principal restarts when it is done", func() {}, func() {
			app.spoke.becomes(t, ran(6))
			restartPrincipal()
		}},
		{"agent restarts when it is done", func() {}, func() {
			app.spoke.becomes(t, ran(7))
			restartAgent()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.before()
			clickSync(t, app)
			c.after()
			app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(n+1))
			app.spoke.becomes(t, idle, annotated(ownPrefix+"intent", ""))
		})
	}
	require.Len(t, starts.distinct(startOf), 7, "operations that the spoke began")
	app.spoke.becomes(t, ran(7))
	start(t, agent.Restart)
	says(t, agent, lab.ConnectedAgentLine)
	require.Equal(t, 7, runs(app.spoke.get(t)), fmt.Sprint(starts.distinct(startOf)))
}
