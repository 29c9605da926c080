package verify_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/verify"
)

// That nothing could be compared is not to be mistaken for two sides that are equal.
func TestUnreachableClusterIsAnError(t *testing.T) {
	t.Parallel()
	nowhere := verify.Site{Config: &rest.Config{Host: "http://127.0.0.1:0"}, Namespace: "argocd", Mapping: mapping.ByNamespace{}}
	pair := verify.Pair{Hub: nowhere, Spoke: nowhere, Agent: "berlin", Mode: facets.Managed}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := pair.Check(ctx)
	require.ErrorContains(t, err, "on the hub")
	_, err = pair.WaitEqual(ctx)
	require.ErrorContains(t, err, "on the spoke")
}
