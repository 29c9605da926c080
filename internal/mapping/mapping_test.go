package mapping_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

func TestTheNamespaceOnTheHubIsTheAgent(t *testing.T) {
	var m mapping.Mapping = mapping.ByNamespace{Spoke: "argocd"}
	hub := types.NamespacedName{Namespace: "berlin", Name: "shop"}
	spoke := types.NamespacedName{Namespace: "argocd", Name: "shop"}

	agent, key := m.Agent(hub, "elsewhere"), m.FromHub(hub)
	require.Equal(t, "berlin", agent)
	require.Equal(t, converge.Key("shop"), key)
	place, err := m.ToSpoke(key)
	require.NoError(t, err)
	require.Equal(t, spoke, place)
	require.Equal(t, key, m.FromSpoke(spoke))
	require.Equal(t, hub, m.ToHub(agent, m.FromSpoke(spoke)))
}

func TestAgentsShareNoKey(t *testing.T) {
	m := mapping.ByNamespace{}
	for _, agent := range []string{"berlin", "paris"} {
		place := m.ToHub(agent, "shop")
		require.Equal(t, agent, m.Agent(place, ""))
		require.Equal(t, converge.Key("shop"), m.FromHub(place))
	}
	require.NotEqual(t, m.ToHub("berlin", "shop"), m.ToHub("paris", "shop"))
}
