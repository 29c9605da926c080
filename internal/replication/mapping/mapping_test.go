package mapping_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

func TestMappingByNamespace(t *testing.T) {
	var m mapping.Mapping = mapping.ByNamespace{Spoke: "argocd"}
	hub := types.NamespacedName{Namespace: "berlin", Name: "shop"}
	spoke := types.NamespacedName{Namespace: "argocd", Name: "shop"}

	agent, allowed := m.Agent(hub, "elsewhere")
	require.True(t, allowed)
	require.Equal(t, "berlin", agent)
	key := m.FromHub(hub)
	require.Equal(t, converge.Key("shop"), key)
	place, err := m.ToSpoke(key)
	require.NoError(t, err)
	require.Equal(t, spoke, place)
	require.Equal(t, key, m.FromSpoke(spoke))
	back, err := m.ToHub(agent, m.FromSpoke(spoke))
	require.NoError(t, err)
	require.Equal(t, hub, back)
	require.Equal(t, "berlin", m.HubNamespace(agent))
	require.Equal(t, m, m.Autonomous())
	require.Equal(t, "shop", m.Instance(key))
}

func TestMappingByNamespaceSeparatesAgents(t *testing.T) {
	m := mapping.ByNamespace{}
	for _, agent := range []string{"berlin", "paris"} {
		place, err := m.ToHub(agent, "shop")
		require.NoError(t, err)
		meant, _ := m.Agent(place, "")
		require.Equal(t, agent, meant)
		require.Equal(t, converge.Key("shop"), m.FromHub(place))
	}
}

func TestMappingByNamespaceAllowedNamespaces(t *testing.T) {
	m := mapping.ByNamespace{Allowed: func(namespace string) bool { return namespace != "paris" }}
	for namespace, want := range map[string]bool{"berlin": true, "paris": false} {
		agent, allowed := m.Agent(types.NamespacedName{Namespace: namespace, Name: "shop"}, "")
		require.Equal(t, namespace, agent, "whom it is meant for is known")
		require.Equal(t, want, allowed)
		_, err := m.ToHub(namespace, "shop")
		require.Equal(t, want, err == nil, "%v", err)
	}
}

// byDestination returns both sides of a mapping between two Argo CDs whose namespaces are called differently.
func byDestination() (hub, spoke mapping.Mapping) {
	teams := func(namespace string) bool { return strings.HasPrefix(namespace, "team-") }
	return mapping.ByDestination{Hub: "argocd", Allowed: teams}, mapping.ByDestination{Spoke: "gitops", Allowed: teams}
}

func TestMappingByDestination(t *testing.T) {
	hub, spoke := byDestination()
	for _, c := range []struct {
		hub, spoke, instance string
		key                  converge.Key
	}{
		{"argocd/shop", "gitops/shop", "shop", "shop"},
		{"team-a/shop", "team-a/shop", "team-a_shop", "team-a/shop"},
	} {
		t.Run(c.hub, func(t *testing.T) {
			onHub, onSpoke := named(c.hub), named(c.spoke)
			agent, allowed := hub.Agent(onHub, "berlin")
			require.True(t, allowed)
			require.Equal(t, "berlin", agent)
			require.Equal(t, c.key, hub.FromHub(onHub))
			place, err := spoke.ToSpoke(hub.FromHub(onHub))
			require.NoError(t, err)
			require.Equal(t, onSpoke, place)
			back, err := hub.ToHub("berlin", spoke.FromSpoke(onSpoke))
			require.NoError(t, err)
			require.Equal(t, onHub, back)
			require.Equal(t, c.instance, hub.Instance(hub.FromHub(onHub)))
		})
	}
	for _, nobody := range []string{"", "in-cluster"} {
		agent, allowed := hub.Agent(named("argocd/shop"), nobody)
		require.Empty(t, agent)
		require.False(t, allowed)
	}
	agent, allowed := hub.Agent(named("kitchen/shop"), "berlin")
	require.Equal(t, "berlin", agent, "whom it is meant for is known")
	require.False(t, allowed)
	require.Empty(t, hub.HubNamespace("berlin"))
	require.Equal(t, mapping.ByNamespace{}, hub.Autonomous(), "the allowed namespaces are not autonomous agents'")
}

// What has no place on the spoke is said with what to do about it, and is never put in the place of something else.
func TestMappingByDestinationErrors(t *testing.T) {
	hub, spoke := byDestination()
	for place, why := range map[string]string{
		"kitchen/shop": `namespace "kitchen": add it to the agent's --allowed-namespaces`,
		"gitops/shop":  `"gitops" is Argo CD's own on the spoke`, // where those of the hub's argocd are
	} {
		_, err := spoke.ToSpoke(hub.FromHub(named(place)))
		require.ErrorIs(t, err, mapping.ErrPlace)
		require.ErrorContains(t, err, why)
	}
	everywhere := mapping.ByDestination{Spoke: "gitops", Allowed: func(string) bool { return true }}
	_, err := everywhere.ToSpoke("gitops/shop")
	require.ErrorIs(t, err, mapping.ErrPlace, "which list would have it does not matter")
}

func named(place string) types.NamespacedName {
	namespace, name, _ := strings.Cut(place, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
