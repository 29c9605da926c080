package mapping_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

// teams allows the namespaces of teams.
func teams(namespace string) bool { return namespace == "team-a" || namespace == "team-b" }

func at(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestKeysOfDestinationsGoThereAndBack(t *testing.T) {
	t.Parallel()
	hub := mapping.ByDestination{Hub: "argocd", Allowed: teams}
	spoke := mapping.ByDestination{Spoke: "gitops", Allowed: teams}
	for _, c := range []struct {
		hub, spoke types.NamespacedName
		key        converge.Key
	}{
		{at("argocd", "shop"), at("gitops", "shop"), "shop"},
		{at("team-a", "shop"), at("team-a", "shop"), "team-a/shop"},
		{at("team-b", "shop"), at("team-b", "shop"), "team-b/shop"},
	} {
		require.Equal(t, c.key, hub.FromHub(c.hub))
		require.Equal(t, c.hub, hub.ToHub("berlin", c.key))
		place, err := spoke.ToSpoke(c.key)
		require.NoError(t, err)
		require.Equal(t, c.spoke, place)
		require.Equal(t, c.key, spoke.FromSpoke(place))
	}
}

// What has no place on the spoke is said with what to do about it, and is never put in the place of something else.
func TestWhatHasNoPlaceOnASpokeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	spoke := mapping.ByDestination{Spoke: "gitops", Allowed: func(string) bool { return true }}
	_, err := spoke.ToSpoke("gitops/shop") // which "shop" is too
	require.ErrorIs(t, err, mapping.ErrPlace)
	require.ErrorContains(t, err, `"gitops" is Argo CD's own on the spoke`)

	spoke.Allowed = teams
	_, err = spoke.ToSpoke("team-c/shop")
	require.ErrorIs(t, err, mapping.ErrPlace)
	require.ErrorContains(t, err, `namespace "team-c": add it to the agent's --allowed-namespaces`)
	require.Equal(t, converge.Key("team-c/shop"), spoke.FromSpoke(at("team-c", "shop")))
}
