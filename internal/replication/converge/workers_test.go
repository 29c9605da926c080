package converge_test

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// facets are as many as a hub shares with an agent.
var facets = []converge.Facet{"a", "b", "c", "d", "e", "f", "g"} //nolint:gochecknoglobals // a constant

// hub is many peers that share workers. The other side of each is the test.
type hub struct {
	t       *testing.T
	workers *converge.Workers
	busy    atomic.Int32 // applies that are running
	most    atomic.Int32 // at a time
}

// newHub returns a hub whose workers run until the test is over.
func newHub(t *testing.T, limit int) *hub {
	t.Helper()
	h := &hub{t: t, workers: converge.NewWorkers(limit)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.workers.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return h
}

// member is one peer of a hub, in a session.
type member struct {
	peer    *converge.Peer
	replica *memoryStore
	end     *pipeEnd // the test's
	leave   func()   // ends the session, and closes the peer
}

// join has another peer begin a session. It holds what apply lets it.
func (h *hub) join(apply func(context.Context, converge.Key, converge.Object) error) member {
	h.t.Helper()
	m := member{replica: newMemoryStore()}
	m.replica.apply = func(ctx context.Context, k converge.Key, o converge.Object) error {
		if n := h.busy.Add(1); n > h.most.Load() {
			h.most.Store(n)
		}
		defer h.busy.Add(-1)
		return apply(ctx, k, o)
	}
	o := converge.Options{
		Observer: newRecordingObserver(), Workers: h.workers,
		Sources: map[converge.Facet]converge.SourceConfig{}, Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: m.replica}},
	}
	for _, f := range facets {
		o.Sources[f] = converge.SourceConfig{Source: newMemoryStore()}
	}
	m.peer = converge.NewPeer(o)
	line := newPipe(1000)
	m.end = line.right
	var session sync.WaitGroup
	session.Go(func() { _ = m.peer.RunSession(h.t.Context(), line.left, time.Minute) })
	for _, f := range facets {
		send(h.t, m.end, converge.Digest{Facet: f, Resync: 1})
	}
	m.leave = sync.OnceFunc(func() {
		line.cut()
		session.Wait()
		m.peer.Close()
	})
	h.t.Cleanup(m.leave)
	return m
}

// put sends n objects to the peer, from the nth on.
func (m member) put(t *testing.T, from, n int) {
	t.Helper()
	for i := range n {
		send(t, m.end, converge.Put{Facet: facet, Key: key(from + i), Seq: uint64(from + i + 1), Object: object("uid", "new")})
	}
}

func hang(ctx context.Context, _ converge.Key, _ converge.Object) error {
	<-ctx.Done()
	return ctx.Err()
}

// goroutines returns how many goroutines run this package or its tests. The runtime's own, such as that of finalizers, come and
// go, and would count with runtime.NumGoroutine.
func goroutines() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("internal/replication/converge")) {
			n++
		}
	}
	return n
}

// The owner of a session and a receiver are all that a peer costs, whatever it did before; and nothing when it has left.
func TestGoroutinesOfAnIdlePeer(t *testing.T) { // alone, for it counts
	bubble.Test(t, func(t *testing.T) {
		const peers = 200
		h := newHub(t, 64)
		synctest.Wait()
		before := goroutines()
		members := make([]member, peers)
		for i := range members {
			members[i] = h.join(pausingApply(time.Second))
			members[i].put(t, 0, 10)
		}
		pass(time.Hour)
		require.LessOrEqual(t, goroutines()-before, 2*peers)
		for _, m := range members {
			require.Len(t, m.replica.states(), 10)
			m.leave()
		}
		synctest.Wait()
		require.LessOrEqual(t, goroutines(), before)
	})
}

// A thousand peers that come back at once share the workers.
func TestPeersShareALimitOfWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHub(t, 16)
		var members []member
		for range 100 {
			m := h.join(pausingApply(10 * time.Millisecond))
			m.put(t, 0, 20)
			members = append(members, m)
		}
		pass(time.Minute)
		require.EqualValues(t, 16, h.most.Load())
		for _, m := range members {
			require.Len(t, m.replica.states(), 20)
		}
	})
}

func TestPeerWithHangingAppliesLeavesWorkersToOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHub(t, 16)
		for range 3 {
			h.join(hang).put(t, 0, 200)
		}
		pass(time.Second)
		require.Less(t, h.busy.Load(), int32(16))
		for range 20 {
			m := h.join(pausingApply(10 * time.Millisecond))
			m.put(t, 0, 20)
			began := time.Now()
			require.Eventually(t, func() bool { return len(m.replica.states()) == 20 }, time.Minute, 10*time.Millisecond)
			require.Less(t, time.Since(began), 2*time.Second)
		}
	})
}

// Even if all workers hang, each for no longer than an apply may take.
func TestManyPeersWithHangingAppliesDoNotBlockOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHub(t, 8)
		for range 50 {
			h.join(hang).put(t, 0, 200)
		}
		m := h.join(pausingApply(10 * time.Millisecond))
		m.put(t, 0, 20)
		pass(3 * time.Hour)
		require.Len(t, m.replica.states(), 20)
	})
}

// A peer that leaves while its applies run has nothing begun any more.
func TestClosedPeerStartsNoSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHub(t, 8)
		m := h.join(pausingApply(time.Second))
		m.put(t, 0, 100)
		synctest.Wait()
		m.leave()
		pass(time.Hour)
		require.Less(t, len(m.replica.states()), 9)
		require.Zero(t, h.busy.Load())
		m.peer.Changed(facet, key(0))
		pass(time.Hour)
	})
}

func TestTasksWaitUntilWorkersRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &hub{t: t, workers: converge.NewWorkers(8)}
		m := h.join(pausingApply(time.Second))
		m.put(t, 0, 20)
		pass(time.Minute)
		require.Empty(t, m.replica.states())
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.workers.Run(ctx) })
		pass(time.Minute)
		require.Len(t, m.replica.states(), 20)
		cancel()
		running.Wait()
	})
}

func pausingApply(d time.Duration) func(context.Context, converge.Key, converge.Object) error {
	pause := pausing(d)
	return func(ctx context.Context, k converge.Key, _ converge.Object) error { return pause(ctx, k) }
}

func TestPausedDeletionsOfClosedPeerAreForgotten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		require.Len(t, p.observer.pausedDeletions(), 1)
		p.disconnect()
		require.Zero(t, p.observer.resumedCount(), "it may come back")
		p.left.Close()
		require.Equal(t, 1, p.observer.resumedCount())
	})
}
