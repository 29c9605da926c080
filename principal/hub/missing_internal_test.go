package hub

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// recordingListener notes which facets of which agents are to be resynced.
type recordingListener struct{ resynced map[string][]converge.Facet }

func (recordingListener) Changed(string, converge.Facet, converge.Key) {}

func (h recordingListener) Resync(agent string, facets ...converge.Facet) {
	h.resynced[agent] = append(h.resynced[agent], facets...)
}

// A new list may lack applications of agents, of some that never connected, and of nobody's.
func TestObjectsMissingInRelistCauseResync(t *testing.T) {
	h, _ := newTestHub(t)
	listener := recordingListener{resynced: make(map[string][]converge.Facet)}
	h.Subscribe(listener)
	h.connect("berlin", facets.Managed)
	var gone []*argocd.App
	for _, namespace := range []string{"berlin", "nobody", "berlin"} {
		gone = append(gone, argocd.Reduce(false)(&argocd.Application{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "guestbook"}, Spec: json.RawMessage(`{}`),
		}, nil))
	}
	(*events)(h).ApplicationsVanished(gone)
	require.Equal(t, map[string][]converge.Facet{"berlin": {facets.Application, facets.Intent, facets.Status}}, listener.resynced)
}
