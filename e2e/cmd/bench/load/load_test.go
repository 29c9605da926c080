package load_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
)

func TestStatusesAreAsLargeAsThoseOfArgoCDAndDiffer(t *testing.T) {
	statuses, err := load.Statuses(11)
	require.NoError(t, err)
	require.Len(t, statuses, 11)
	revisions := make(map[string]bool)
	for _, status := range statuses {
		require.InDelta(t, 14_000, status.Size(), 2_000)
		require.Len(t, status.Revision, 40)
		revisions[status.Revision] = true
	}
	require.Len(t, revisions, 11)
}

func TestNamesSortAsTheyAreCounted(t *testing.T) {
	require.Equal(t, []string{"a-0000", "a-0001"}, load.Names("a", 2))
}
