package argocd_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

func TestInstanceName(t *testing.T) {
	for instance, id := range map[string]types.NamespacedName{
		"shop":        {Namespace: "argocd", Name: "shop"},
		"team-a_shop": {Namespace: "team-a", Name: "shop"},
	} {
		require.Equal(t, instance, argocd.Instance(id, "argocd"))
		require.Equal(t, id, argocd.ParseInstance(instance, "argocd"))
	}
}
