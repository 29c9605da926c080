package facets_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// An application of an autonomous agent's names others as the hub shows them. Who asks on the hub for a sync of one of these
// names it so, and the spoke syncs the one that it has.
func TestSyncOfAChildOfAnAutonomousAgents(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	child := func(namespace string) string {
		return `[{"group":"argoproj.io","kind":"Application","name":"child","namespace":"` + namespace + `"}]`
	}
	stored := p.spokeAPI.put(argocd.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "parent", UID: "on-spoke"},
		Spec:       json.RawMessage(`{"project":"default"}`), Status: json.RawMessage(`{"resources":` + child("argocd") + `}`),
	})
	record(t, p.spoke.Applications, stored)
	require.NoError(t, p.send(facets.Application, "parent"))
	require.NoError(t, p.send(facets.Status, "parent"))
	shown := p.hubAPI.get("parent")
	require.JSONEq(t, `{"resources":`+child("berlin")+`}`, string(shown.Status))

	shown.Operation = json.RawMessage(`{"info":[{"name":"` + argocd.InfoIntent + `","value":"mine"}],"sync":{"resources":` + child("berlin") + `}}`)
	record(t, p.hub.Applications, p.hubAPI.put(*shown))
	require.NoError(t, p.send(facets.Intent, "parent"))
	require.JSONEq(t, strings.ReplaceAll(string(shown.Operation), "berlin", "argocd"), string(p.spokeAPI.get("parent").Operation))

	// What it cannot read is refused, and not done in part.
	broken := asked("broken")
	broken.UID = "on-spoke"
	broken.Payload = []byte(`{"operation":["Application"],"operationName":"broken"}`)
	_, err := p.there.Replicas[facets.Intent].Apply(t.Context(), "parent", broken)
	require.ErrorIs(t, err, converge.ErrRefused)
}
