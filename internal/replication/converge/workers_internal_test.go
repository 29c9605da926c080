package converge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While applies hang, the queues of thousands of agents wait. A change must not cost a look at all of them.
func TestChangesAreCheapWhileAllWorkersAreBusy(t *testing.T) {
	const agents = 50_000
	w := NewWorkers(1)
	w.start = func(*taskQueue) {} // which never ends
	queues := make([]*taskQueue, agents)
	began := time.Now()
	for i := range queues {
		queues[i] = &taskQueue{}
		w.add(queues[i])
	}
	for _, q := range queues {
		w.add(q)
	}
	require.Less(t, time.Since(began), time.Second, "one look at each of them takes milliseconds")
	require.Len(t, w.waiting, agents, "all but the one that runs, which waits again")
}
