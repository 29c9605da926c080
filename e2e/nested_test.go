package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// An Application of an autonomous agent's that deploys another is shown on the hub with that one under the name by which it is
// there: in its status, its tree and its diff, which the UI joins by names and links by; and a sync of that one alone works.
func TestAppOfAppsOnAutonomousSpoke(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute and a lab of its own: make e2e runs it")
	}
	const agent = "free"
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{
		Spokes: []string{agent}, ArgoCD: true, Agents: true, Agent: lab.AgentOptions{Mode: "autonomous"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	onSpoke := func(a *twin) *unstructured.Unstructured {
		object := argocd.New(a.declared)
		object.SetNamespace(lab.Namespace)
		return object
	}
	parent, child := ownOf(l, agent, "parent", "apps", lab.Namespace), ownOf(l, agent, "child", lab.ConfigPath, "child")
	manifest, err := json.Marshal(onSpoke(child).Object)
	require.NoError(t, err)
	_, err = l.Git.Commit(ctx, "an Application", map[string]string{"apps/child.yaml": string(manifest)})
	require.NoError(t, err)
	require.NoError(t, l.Spoke(agent).Apply(ctx, onSpoke(parent)))
	parent.hub.becomes(t, has("OutOfSync", "status", "sync", "status"))
	clickSync(t, parent)
	child.hub.becomes(t)
	shown := parent.hub.becomes(t, phase("Succeeded"), has("Synced", "status", "sync", "status"), absent("operation"))

	var seen struct {
		Nodes, Items, Resources []struct{ Kind, Namespace, Name string }
		SyncResult              struct {
			Resources []struct{ Kind, Namespace, Name string }
		}
	}
	read := func(text string) { require.NoError(t, json.Unmarshal([]byte(text), &seen)) }
	read(ask(t, http.MethodGet, parent, "/resource-tree", "", nil))
	read(ask(t, http.MethodGet, parent, "/managed-resources", "", nil))
	for _, part := range [][]string{{"status"}, {"status", "operationState"}} {
		value, _, _ := unstructured.NestedMap(shown.Object, part...)
		text, err := json.Marshal(value)
		require.NoError(t, err)
		read(string(text))
	}
	want := []struct{ Kind, Namespace, Name string }{{"Application", agent, "child"}}
	require.Equal(t, want, seen.Nodes)
	require.Equal(t, want, seen.Items)
	require.Equal(t, want, seen.Resources)
	require.Equal(t, want, seen.SyncResult.Resources)

	old := child.spoke.get(t)
	child.spoke.delete(t)
	child.spoke.vanishes(t)
	clickRefresh(t, parent, "normal")
	ask(t, http.MethodPost, parent, "/sync", "", map[string]any{
		"appNamespace": agent,
		"resources":    []any{map[string]any{"group": "argoproj.io", "kind": "Application", "name": "child", "namespace": agent}},
	})
	child.spoke.becomes(t, func(object *unstructured.Unstructured) bool { return object.GetUID() != old.GetUID() })
}
