package converge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

func TestSecondSessionIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		line := newPipe(4)
		err := p.left.RunSession(t.Context(), line.left, 0)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.Canceled)
		require.Empty(t, line.left.sent)
		// The first goes on, and another may follow it.
		p.source.set(key(1), object("uid1", "newer"))
		p.requireEqual()
		p.disconnect()
		p.connect()
		p.source.set(key(1), object("uid1", "newest"))
		p.requireEqual()
	})
}

func TestSessionReportsWhyItEnded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{})
		for name, end := range map[string]struct {
			by   func(cancel context.CancelCauseFunc, line *pipe)
			want error
		}{
			"line":  {func(_ context.CancelCauseFunc, line *pipe) { line.cut() }, errCut},
			"cause": {func(cancel context.CancelCauseFunc, _ *pipe) { cancel(errNotNow) }, errNotNow},
			"none":  {func(cancel context.CancelCauseFunc, _ *pipe) { cancel(nil) }, context.Canceled},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			line := newPipe(4)
			var err error
			var talk sync.WaitGroup
			talk.Go(func() { err = p.left.RunSession(ctx, line.left, 0) })
			synctest.Wait()
			end.by(cancel, line)
			talk.Wait()
			cancel(nil)
			require.ErrorIs(t, err, end.want, name)
		}
	})
}

// What is being applied when a session ends is not broken off, and nobody waits for it. What the source did meanwhile is
// not lost for that: the next session reports how it went.
func TestApplyOutlivesItsSession(t *testing.T) {
	for name, meanwhile := range map[string]func(*memoryStore){
		"nothing":  func(*memoryStore) {},
		"changed":  func(s *memoryStore) { s.set(key(0), object("uid0", "newer")) },
		"deleted":  func(s *memoryStore) { s.drop(key(0)) },
		"replaced": func(s *memoryStore) { s.set(key(0), object("uid1", "another")) },
	} {
		for _, retain := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", retain), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					p := newPair(t, pairOptions{retain: retain})
					slow := pausing(10 * time.Second)
					p.replica.apply = func(ctx context.Context, k converge.Key, _ converge.Object) error { return slow(ctx, k) }
					p.source.fill(1)
					for _, s := range []*memoryStore{p.source, p.replica} {
						s.set(key(1), object("uid1", "v1")) // if the other were all, the guard would hold its deletion
					}
					p.connect()
					pass(time.Second)
					p.disconnect()
					meanwhile(p.source)
					p.connect()
					pass(time.Second)
					require.False(t, p.replica.has(key(0)))
					pass(time.Hour)
					p.requireEqual()
				})
			})
		}
	}
}

// An apply that hangs for one key leaves all others alone, and is given up after a while.
func TestApplyThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{})
		p.replica.apply = func(ctx context.Context, k converge.Key, _ converge.Object) error {
			if k == key(7) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		p.source.fill(1000)
		p.connect()
		pass(time.Hour)
		require.Len(t, p.replica.states(), 999)
		p.source.set(key(7), object("uid7", "newer"))
		p.source.set(key(8), object("uid8", "newer"))
		synctest.Wait()
		require.Equal(t, p.source.Held(key(8)), p.replica.Held(key(8)))
		p.replica.heal()
		pass(2 * time.Minute)
		p.requireEqual()
	})
}

// The bubble of each test sees to it that no goroutine is left; here the context ends everything in the midst of work.
func TestEverythingEndsWithTheContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source, replica := newMemoryStore(), newMemoryStore()
		source.fill(1000)
		source.reportResult = func(context.Context, converge.Key, converge.Result) error { return errNotNow }
		var calls atomic.Int32
		replica.apply = func(ctx context.Context, k converge.Key, _ converge.Object) error {
			switch calls.Add(1) % 3 {
			case 0:
				return errNotNow
			case 1:
				return pausing(time.Second)(ctx, k)
			}
			return nil
		}
		pool := converge.NewWorkers(workers)
		left := converge.NewPeer(converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(), Workers: pool,
		})
		right := converge.NewPeer(converge.Options{
			Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: replica}}, Observer: newRecordingObserver(), Workers: pool,
		})
		var all sync.WaitGroup
		line := newPipe(4)
		all.Go(func() { pool.Run(ctx) })
		errs := make([]error, 2)
		all.Go(func() { errs[0] = left.RunSession(ctx, line.left, 0) })
		all.Go(func() { errs[1] = right.RunSession(ctx, line.right, 0) })
		time.Sleep(1500 * time.Millisecond)
		cancel()
		all.Wait()
		left.Close()
		right.Close()
		require.ErrorIs(t, errors.Join(errs...), context.Canceled)
		require.Zero(t, left.Backlog(facet))
		// What comes too late does no harm.
		left.Changed(facet, key(1))
		right.Changed(facet, key(1))
		left.Resync(facet)
		right.Resync(facet)
		require.False(t, left.ConfirmDeletions(facet, "token"))
		pass(time.Hour)
	})
}

// When Run has ended, a session that goes on ends all the same.
func TestSessionOutlivesRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source, replica := newMemoryStore(), newMemoryStore()
		source.fill(10)
		left := runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(),
		})
		pool := converge.NewWorkers(workers)
		right := converge.NewPeer(converge.Options{
			Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: replica}}, Observer: newRecordingObserver(), Workers: pool,
		})
		defer right.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		pool.Run(ctx)
		line := newPipe(4)
		talk := runSessions(t, line, left, right)
		pass(time.Hour)
		line.cut()
		talk.Wait()
		require.Empty(t, replica.states())
	})
}

func TestLagIsFromTheLastChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		lags := &lagObserver{recordingObserver: p.observer}
		p.disconnect()
		p.left = runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: p.source}}, Observer: lags,
		})
		slow := pausing(10 * time.Second)
		p.replica.apply = func(ctx context.Context, k converge.Key, _ converge.Object) error { return slow(ctx, k) }
		p.connect()
		synctest.Wait()
		p.source.set(key(1), object("uid1", "a"))
		pass(4 * time.Second)
		p.source.set(key(1), object("uid1", "b")) // waits six seconds, and takes ten
		pass(time.Minute)
		require.Equal(t, []time.Duration{10 * time.Second, 16 * time.Second}, lags.lags)
	})
}

type lagObserver struct {
	*recordingObserver

	lags []time.Duration
}

func (w *lagObserver) Acknowledged(_ converge.Ack, lag time.Duration) {
	w.lags = append(w.lags, lag)
}

// Run returns when all that it had begun is over.
func TestRunWaitsForWhatItBegan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica, busy := newMemoryStore(), atomic.Int32{}
		replica.fill(1)
		pool := converge.NewWorkers(workers)
		peer := converge.NewPeer(converge.Options{
			Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {
				Replica: replica, Retain: true,
				Recall: func(k converge.Key) (converge.Object, bool) { return replica.Project(k) },
			}},
			Observer: newRecordingObserver(), Workers: pool,
		})
		defer peer.Close()
		replica.changed = func(k converge.Key) { peer.Changed(facet, k) }
		replica.apply = func(context.Context, converge.Key, converge.Object) error {
			busy.Add(1)
			time.Sleep(time.Second)
			busy.Add(-1)
			return nil
		}
		peer.Changed(facet, key(0)) // is recalled
		replica.set(key(0), object("uid0", "edited"))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { pool.Run(ctx) })
		synctest.Wait()
		require.EqualValues(t, 1, busy.Load())
		cancel()
		running.Wait()
		require.Zero(t, busy.Load())
	})
}
