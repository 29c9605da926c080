package converge_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

//nolint:gochecknoglobals // flags of a test are
var (
	histories = flag.Int("histories", 3000, "how many random histories TestAnyHistoryEndsEqual runs")
	seedFlag  = flag.Uint64("seed", 0, "run the one history with this seed")
)

// TestAnyHistoryEndsEqual drives two sides through random histories: changes on both sides, restarts of either, cuts,
// late, repeated and overlooked messages, applies that are refused, that fail, and that fail and yet happened. In half of them the left
// side has two to four processes, each with a cache of its own that comes late, and the right side moves between them. Nothing that
// the source had removed comes back, nothing that it has is removed, and once all is quiet, both are equal.
func TestAnyHistoryEndsEqual(t *testing.T) {
	if *seedFlag != 0 {
		runHistory(t, *seedFlag)
		return
	}
	start := rand.Uint64()
	for i := range uint64(*histories) {
		if !runHistory(t, start+i) {
			return
		}
	}
}

func runHistory(t *testing.T, seed uint64) bool {
	t.Helper()
	return t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			for range 20 + w.rand.IntN(60) {
				w.step()
			}
			w.quiet()
			w.requireEqual()
			w.stop()
		})
	})
}

// facets of the world: one whose source is on the left, retained on the right; one the other way round, not retained.
const (
	downward = converge.Facet("downward")
	upward   = converge.Facet("upward")
)

// world is two sides, left and right, each with a store that outlives its processes, and a line between them.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	truth   map[converge.Facet]*store // what the sources have
	replica map[converge.Facet]*store // what the replicas hold
	lefts   []*process
	left    *process // of these, the one that the right side is connected to
	right   *process
	line    *line
	dial    sync.WaitGroup // the sessions of the right side
	serve   sync.WaitGroup // and those of the left: they may last a little longer
	noise   *watcher
	created int // objects of the sources

	compareEvery time.Duration
	compare      bool // at the end: what is refused or overlooked, only a resync mends
	deaf         int  // of a hundred messages, how many are overlooked
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), noise: &watcher{},
		truth: map[converge.Facet]*store{}, replica: map[converge.Facet]*store{},
	}
	w.compareEvery = 1000 * time.Hour
	if w.rand.IntN(4) == 0 {
		w.compareEvery = time.Minute
	}
	refusing := 0
	switch w.rand.IntN(6) {
	case 0:
		w.compare, refusing = true, 20
	case 1:
		w.compare, w.deaf = true, 5
	}
	for i, f := range []converge.Facet{downward, upward} {
		w.truth[f] = newStore(seed + uint64(2*i))
		w.replica[f] = newStore(seed + uint64(2*i) + 1)
		w.replica[f].failing, w.replica[f].refusing = 20, refusing
		w.replica[f].truth = w.truth[f]
	}
	lefts := 1
	if w.rand.IntN(2) == 0 {
		lefts = 2 + w.rand.IntN(3)
	}
	for range lefts {
		w.lefts = append(w.lefts, w.startLeft())
	}
	w.left = w.lefts[0]
	w.startRight()
	w.connect()
	return w
}

// process is one run of one side.
type process struct {
	peer     *converge.Peer
	down, up *cache        // on the left
	turn     chan struct{} // is taken for the length of a session
	cancel   context.CancelFunc
	done     chan struct{}
}

// options are those of a process. Resyncs would mend whatever a session got wrong; most histories have none but the first.
func (w *world) options() converge.Options {
	return converge.Options{Observer: w.noise, ResyncEvery: w.compareEvery, Workers: converge.NewWorkers(workers)}
}

// startLeft starts a process on the left: it knows nothing but what is in its stores.
func (w *world) startLeft() *process {
	o, p := w.options(), &process{}
	p.down = newCache(w.truth[downward], w.rand.Uint64(), func(k converge.Key) { p.peer.Changed(downward, k) })
	p.up = newCache(w.replica[upward], w.rand.Uint64(), func(k converge.Key) { p.peer.Changed(upward, k) })
	o.Sources = map[converge.Facet]converge.SourceConfig{downward: {
		Source: p.down, Revision: p.down.revision, Reach: p.down.reach, Confirm: p.down.confirm,
	}}
	o.Replicas = map[converge.Facet]converge.ReplicaConfig{upward: {Replica: p.up}}
	w.run(p, o)
	p.down.start(w.t.Context())
	p.up.start(w.t.Context())
	return p
}

// startRight starts the process on the right anew.
func (w *world) startRight() {
	o, p := w.options(), &process{}
	down, up := w.replica[downward], w.truth[upward]
	o.Sources = map[converge.Facet]converge.SourceConfig{upward: {Source: up}}
	o.Replicas = map[converge.Facet]converge.ReplicaConfig{downward: {Replica: down, Retain: true, Recall: down.recall}}
	w.run(p, o)
	down.watch(func(k converge.Key) { p.peer.Changed(downward, k) })
	up.watch(func(k converge.Key) { p.peer.Changed(upward, k) })
	w.right = p
}

func (w *world) run(p *process, o converge.Options) {
	p.peer, p.done, p.turn = converge.NewPeer(o), make(chan struct{}), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(w.t.Context())
	p.cancel = cancel
	go func() { defer close(p.done); o.Workers.Run(ctx); p.peer.Close() }()
}

func (p *process) stop() {
	p.cancel()
	<-p.done
	if p.down != nil {
		p.down.stop()
		p.up.stop()
	}
}

// connect ends a session, if there is one, and begins another, with any process of the left side.
func (w *world) connect() {
	w.cut()
	w.line = newLine(w.rand.Uint64(), w.deaf)
	w.left = w.lefts[w.rand.IntN(len(w.lefts))]
	ctx, l, left, right := w.t.Context(), w.line, w.left, w.right
	seen := right.peer.Seen()
	w.serve.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w.serve.Go(func() {
			defer cancel()
			<-l.gone
		})
		defer l.cut()
		left.turn <- struct{}{}
		defer func() { <-left.turn }()
		if left.peer.Reach(ctx, seen) == nil {
			_ = left.peer.RunSession(ctx, l.left, 0)
		}
	})
	w.dial.Go(func() {
		_ = right.peer.RunSession(ctx, l.right, 0)
		l.cut()
	})
}

// cut ends the session of the right side. That of the left may last a little longer.
func (w *world) cut() {
	if w.line != nil {
		w.line.cut()
	}
	w.dial.Wait()
}

// step does one thing that may happen.
func (w *world) step() {
	f := downward
	if w.rand.IntN(2) == 0 {
		f = upward
	}
	k := converge.Key(fmt.Sprintf("k%d", w.rand.IntN(12)))
	switch n := w.rand.IntN(100); {
	case n < 40:
		w.truth[f].put(k, w.uidOf(f, k), fmt.Sprintf("v%d", w.rand.IntN(4)))
	case n < 52:
		w.truth[f].del(k)
	case n < 64:
		uid := w.replica[f].Held(k).UID
		if w.rand.IntN(2) == 0 {
			uid = "others"
		}
		w.replica[f].put(k, uid, fmt.Sprintf("drift%d", w.rand.IntN(3)))
	case n < 72:
		w.replica[f].del(k)
	case n < 78:
		w.cut()
	case n < 84:
		w.connect()
	case n < 88:
		w.restartLeft(w.rand.IntN(len(w.lefts)))
	case n < 92:
		w.restartRight()
	default:
		time.Sleep(time.Duration(w.rand.IntN(2000)) * time.Millisecond)
	}
	if w.rand.IntN(3) > 0 {
		time.Sleep(time.Duration(w.rand.IntN(30)) * time.Millisecond)
	}
}

// uidOf returns the UID of an object of a source, or a new one: no two that were created have the same.
func (w *world) uidOf(f converge.Facet, k converge.Key) string {
	if held := w.truth[f].Held(k); held.UID != "" && w.rand.IntN(5) > 0 {
		return held.UID
	}
	w.created++
	return fmt.Sprintf("uid%d", w.created)
}

func (w *world) restartLeft(i int) {
	if w.lefts[i] == w.left {
		w.cut()
	}
	old := w.lefts[i]
	old.stop()
	w.lefts[i] = w.startLeft()
	if old == w.left {
		w.left = w.lefts[i]
	}
}

// restartRight starts the right side anew. What it has seen is forgotten then: a cache that is late may bring back what was removed before,
// for as long as it is late. It must not remove anything.
func (w *world) restartRight() {
	w.cut()
	w.right.stop()
	if w.rand.IntN(2) == 0 {
		w.replica[downward].forgetRemoved()
	} else {
		for _, p := range w.lefts {
			require.NoError(w.t, p.down.reach(w.t.Context(), w.truth[downward].revision()))
		}
	}
	w.startRight()
}

// quiet lets everything work, connects if need be, and waits until nothing can be under way any more.
func (w *world) quiet() {
	for _, s := range w.replica {
		s.mu.Lock()
		s.failing, s.refusing = 0, 0
		s.mu.Unlock()
	}
	w.deaf = 0
	w.line.deliverAll()
	if w.line.isCut() {
		w.connect()
	}
	time.Sleep(5 * time.Minute)
	if w.compare {
		w.left.peer.Resync(upward)
		w.right.peer.Resync(downward)
		time.Sleep(5 * time.Minute)
	}
	peers := []*converge.Peer{w.right.peer}
	for _, p := range w.lefts {
		peers = append(peers, p.peer)
	}
	w.noise.release(peers...)
	time.Sleep(5 * time.Minute)
	synctest.Wait()
}

func (w *world) requireEqual() {
	for f := range w.truth {
		require.Equal(w.t, w.truth[f].content(), w.replica[f].content(), "facet %s", f)
		require.Empty(w.t, w.replica[f].returned, "facet %s: they were removed, and came back", f)
		require.Empty(w.t, w.replica[f].lost, "facet %s: they were removed, and should not have been", f)
		require.Empty(w.t, w.truth[f].refusedConditions, "facet %s: they are as they should be, and shown as refused", f)
	}
	require.Zero(w.t, w.left.peer.Backlog(downward))
	require.Zero(w.t, w.right.peer.Backlog(upward))
}

func (w *world) stop() {
	w.cut()
	for _, p := range w.lefts {
		p.stop()
	}
	w.right.stop()
	w.serve.Wait()
}

// watcher is an Observer that confirms all paused deletions, when asked.
type watcher struct {
	mu     sync.Mutex
	paused []converge.PausedDeletions
}

func (w *watcher) Sent(converge.Message, time.Duration)                   {}
func (w *watcher) Acknowledged(converge.Ack, time.Duration)               {}
func (w *watcher) Applied(converge.Message, converge.Ack, time.Duration)  {}
func (w *watcher) Repaired(converge.Facet, converge.Key, converge.Result) {}
func (w *watcher) Removed(converge.Facet, converge.Key, converge.Result)  {}
func (w *watcher) DeletionsResumed(converge.Facet)                        {}
func (w *watcher) Compared(converge.Facet)                                {}
func (w *watcher) DeletionsPaused(b converge.PausedDeletions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = append(w.paused, b)
}

func (w *watcher) release(peers ...*converge.Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.paused {
		for _, p := range peers {
			p.ConfirmDeletions(b.Facet, b.Token)
		}
	}
}
