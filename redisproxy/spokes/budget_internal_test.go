package spokes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// However many agents take as much as they can, the next one's usual values are read, and what is in use stays bounded.
func TestNoAgentsTogetherTakeTheWholeReadBudget(t *testing.T) {
	t.Parallel()
	const agents = 100
	var all budget
	liars := make([]share, agents)
	for i := range liars {
		for all.take(&liars[i], 64<<10) == nil {
			require.LessOrEqual(t, liars[i].used, int64(maxShare))
		}
		if i == 2 { // three have most of it
			require.NoError(t, all.take(&share{}, 16<<20), "and the fourth has a large value read")
			all.release(&share{}, 16<<20)
		}
		var honest share
		require.NoError(t, all.take(&honest, minShare))
		require.ErrorIs(t, all.take(&honest, maxShare), errRefused)
		all.release(&honest, minShare)
	}
	require.LessOrEqual(t, all.used, int64(maxValues+agents*minShare))
	for i := range liars {
		all.release(&liars[i], liars[i].used)
	}
	require.Zero(t, all.used)
	require.NoError(t, all.take(&share{}, maxValue), "and all of it comes back")
}
