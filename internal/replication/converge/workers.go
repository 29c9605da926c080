package converge

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// workersPerFacet is how many applies or reports run at a time for one facet of one peer. Each is mostly the wait for an
	// API server.
	workersPerFacet = 32
	// applyTimeout is how long each may take. The end of a session does not end it: a write that is cancelled may have
	// happened all the same.
	applyTimeout = time.Minute
)

// Workers do the work of peers: they apply what peers send, restore drift, and tell sources the results. All peers of a
// process share them, so that a thousand agents that come back at once do not send tens of thousands of writes at a time.
// A goroutine lasts as long as one task, so an idle peer has none.
//
// The facets of all peers take turns. A peer has at most as many tasks running as workers are free. So one whose applies hang
// leaves half of the workers to others, and two a third. Of a peer's half its facets share in the same way, and none has more
// than workersPerFacet.
type Workers struct {
	limit  int
	memory *semaphore.Weighted // for payloads that are being decoded
	tasks  sync.WaitGroup

	mu      sync.Mutex
	start   func(*taskQueue) // begins the next task of a queue; nil while Run does not run. Guarded by mu, as are all fields below
	busy    int              // how many tasks are running
	waiting []*taskQueue     // those that may have a task ready, in the order of their turns
}

// taskQueue is the work for one facet of one peer.
type taskQueue struct {
	peer    *Peer
	backlog *backlog[task]

	running int  // how many of its tasks are. Guarded by Workers.mu
	waits   bool // it is in Workers.waiting. Guarded by Workers.mu
}

// NewWorkers returns workers that run at most so many tasks at a time, and none until Run runs.
func NewWorkers(limit int) *Workers {
	return &Workers{limit: limit, memory: semaphore.NewWeighted(totalMemory)}
}

// Run lets the workers work until the context ends, and returns when all that they had begun is over.
func (w *Workers) Run(ctx context.Context) {
	w.mu.Lock()
	w.start = func(q *taskQueue) {
		w.tasks.Go(func() {
			q.runNext(ctx)
			w.finished(q)
		})
	}
	w.dispatch()
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.start = nil
	w.mu.Unlock()
	w.tasks.Wait()
}

// add gives a queue that may have a task ready its turn.
func (w *Workers) add(q *taskQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.waits {
		return // it may not run yet: nothing has changed
	}
	q.waits = true
	w.waiting = append(w.waiting, q)
	w.dispatch()
}

// finished says that a task is over.
func (w *Workers) finished(q *taskQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.running--
	q.peer.running--
	w.busy--
	w.dispatch()
}

// dispatch begins as many tasks as may run. w.mu is held.
func (w *Workers) dispatch() {
	for w.start != nil && w.busy < w.limit {
		// Of those that wait, only the few that have tasks running may have to be passed over.
		next := slices.IndexFunc(w.waiting, w.mayRun)
		if next < 0 {
			return
		}
		q := w.waiting[next]
		copy(w.waiting[1:next+1], w.waiting[:next])
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
		q.waits = false
		q.running++
		q.peer.running++
		w.busy++
		w.start(q)
	}
}

// mayRun reports whether one more task of a queue may run. A worker is free, and w.mu is held.
func (w *Workers) mayRun(q *taskQueue) bool {
	share := (w.limit + 1) / 2 // of the peer
	return q.peer.running < min(share, w.limit-w.busy) && q.running < min(workersPerFacet, share-q.peer.running)
}

// runNext runs the next task, if there is one.
func (q *taskQueue) runNext(ctx context.Context) {
	t, ok := q.backlog.take()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	q.peer.process(ctx, t)
}
