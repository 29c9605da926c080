package converge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While applies hang, the queues of thousands of agents wait. A change must not cost a look at all of them.
func TestChangesAreCheapWhileAllWorkersAreBusy(t *testing.T) {
	const agents = 200_000
	w := NewWorkers(1)
	w.start = func(*taskQueue) {} // which never ends
	queues := make([]*taskQueue, agents)
	began := time.Now()
	for i := range queues {
		queues[i] = &taskQueue{peer: &Peer{}}
		w.add(queues[i])
	}
	for _, q := range queues {
		w.add(q)
	}
	require.Less(t, time.Since(began), time.Minute, "a look at all of them for each takes far longer")
	require.Len(t, w.waiting, agents, "all but the one that runs, which waits again")
}

// An agent whose API server or namespace hangs in every facet stops neither other agents nor one of its own facets for good.
func TestHangingAgentLeavesWorkersToOthers(t *testing.T) {
	w := NewWorkers(128)
	w.start = func(*taskQueue) {} // which never ends
	busy := func(facets int) []*taskQueue {
		peer, queues := &Peer{}, make([]*taskQueue, facets)
		for range w.limit { // each has more to do whenever it may
			for i := range queues {
				if queues[i] == nil {
					queues[i] = &taskQueue{peer: peer}
				}
				w.add(queues[i])
			}
		}
		return queues
	}
	hanging := busy(8)
	require.LessOrEqual(t, hanging[0].peer.running, 64)
	for _, q := range hanging {
		require.Positive(t, q.running)
	}
	require.Equal(t, 32, busy(1)[0].running, "another agent")
	require.Positive(t, busy(1)[0].running, "and one more")
}
