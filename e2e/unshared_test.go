package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// What a spoke keeps to itself is closed to live access too, also when it was shared before; and open at once when it is shared again.
func TestObjectsOfIgnoredApplicationAreClosedToTheHub(t *testing.T) {
	t.Parallel()
	s, app := newAutonomous(t, "closing", lab.AgentOptions{})
	app.shown(t)
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	create(t, s.spoke, cluster.Selection{Resource: accounts, Namespace: s.name, Name: "mine"}, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{
			"name": "mine", "namespace": s.name, "annotations": map[string]any{
				"argocd.argoproj.io/tracking-id": app.declared.Name + ":/ServiceAccount:" + s.name + "/mine",
			},
		},
	}})
	k := newKubectl(t, s.name, "", s.name)
	for range 2 {
		require.Contains(t, k.run(t, "", "get", "serviceaccount", "mine"), "mine")
		app.spoke.edit(t, label(ignored, "true"))
		app.hub.vanishes(t) // so the agent knows
		out, err := k.try(t, "", "get", "serviceaccount", "mine")
		require.Error(t, err)
		require.Contains(t, out, "belongs to no Argo CD application that this cluster shares with the hub")
		app.spoke.edit(t, label(ignored, ""))
		app.shown(t)
	}
	require.Contains(t, k.run(t, "", "get", "serviceaccount", "mine"), "mine")
}
