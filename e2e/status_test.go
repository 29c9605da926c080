package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	argocdwire "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// same holds for an Application whose status is that of another.
func same(status any) condition {
	return func(object *unstructured.Unstructured) bool { return equalStatus(object.Object["status"], status) }
}

func equalStatus(a, b any) bool {
	left, right := &unstructured.Unstructured{Object: map[string]any{"s": a}}, &unstructured.Unstructured{Object: map[string]any{"s": b}}
	return describe(left) == describe(right)
}

// displayed returns the status that the hub shows of an agent's Application which has that status: its operation is a display
// copy.
func displayed(agent string, status any) any {
	var shown any
	raw, err := json.Marshal(status)
	if err == nil {
		raw, err = argocdwire.DisplayStatus(raw, agent)
	}
	if err == nil {
		err = utiljson.Unmarshal(raw, &shown) // numbers are those of unstructured objects
	}
	if err != nil {
		return err
	}
	return shown
}

func describe(object *unstructured.Unstructured) string {
	data, err := object.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestStatusReachesHub(t *testing.T) {
	t.Parallel()
	app := newTwin("a", "reported")
	app.declared.Path = lab.GuestbookPath
	app.create(t)
	app.hub.becomes(t, has("OutOfSync", "status", "sync", "status"), has("Missing", "status", "health", "status"))

	clickSync(t, app)
	done := app.hub.becomes(t, syncedAndHealthy, has("Succeeded", "status", "operationState", "phase"))
	require.Contains(t, text(done, "status", "operationState", "message"), "successfully synced")
	app.hub.becomes(t, same(displayed("a", app.spoke.get(t).Object["status"])))

	guestbook := app.configMap()
	guestbook.selection.Name = "guestbook"
	guestbook.delete(t)
	app.hub.becomes(t, has("OutOfSync", "status", "sync", "status"))
}

// What the spoke does of itself is shown too.
func TestSpokeInitiatedOperationShowsOnHub(t *testing.T) {
	t.Parallel()
	app := newTwin("a", "self-syncing").automated()
	app.create(t)
	done := app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(1))
	automated, _, err := unstructured.NestedBool(done.Object, "status", "operationState", "operation", "initiatedBy", "automated")
	require.NoError(t, err)
	require.True(t, automated)
}

// idle holds for an Application for which no operation is asked for or running.
func idle(object *unstructured.Unstructured) bool { return object.Object["operation"] == nil }

// startOf tells the operations of an Application apart: by when they began, to the second, and by the name that the hub
// gave to what it asked for.
func startOf(object *unstructured.Unstructured) string {
	start := text(object, "status", "operationState", "startedAt")
	infos, _, _ := unstructured.NestedSlice(object.Object, "status", "operationState", "operation", "info")
	for _, info := range infos {
		if info, ok := info.(map[string]any); ok && info["name"] == ownPrefix+"intent" {
			start += fmt.Sprint(" ", info["value"])
		}
	}
	return start
}

// Only the spoke knows how its Applications are.
func TestForeignStatusOnHubIsOverwritten(t *testing.T) {
	t.Parallel()
	app := newTwin("a", "corrected").automated().create(t)
	app.hub.becomes(t, syncedAndHealthy)
	for name, change := range map[string]change{
		"changed": func(object *unstructured.Unstructured) { set(object, "Degraded", "status", "health", "status") },
		"removed": func(object *unstructured.Unstructured) { delete(object.Object, "status") },
	} {
		t.Run(name, func(t *testing.T) {
			app.hub.edit(t, change)
			app.hub.becomes(t, syncedAndHealthy)
		})
	}
}

func TestStatusCatchesUpAfterReconnect(t *testing.T) {
	app := newTwin("b", "catching-up").create(t)
	app.arrives(t)
	clickSync(t, app)
	app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle)
	disconnect(t, "b")
	app.configMap().delete(t)
	gone := app.spoke.becomes(t, has("OutOfSync", "status", "sync", "status"))
	require.True(t, argocd.SyncedAndHealthy(app.hub.get(t)), "what was known last stays visible")

	reconnect(t, "b")
	app.hub.becomes(t, has("OutOfSync", "status", "sync", "status"), same(displayed("b", gone.Object["status"])))
}
