package converge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// requireBackoff fails unless each wait is within the bounds of a doubling backoff from first to last.
func requireBackoff(t *testing.T, at []time.Time, first, last time.Duration) {
	t.Helper()
	most := first
	for i := 1; i < len(at); i++ {
		wait := at[i].Sub(at[i-1])
		require.LessOrEqual(t, wait, most, "wait %d", i)
		require.GreaterOrEqual(t, wait, most/2, "wait %d", i)
		most = min(2*most, last)
	}
}

func TestRetriesBackOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errNotNow, key(1))
		p.source.set(key(1), object("uid1", "newer"))
		pass(10 * time.Minute)
		at := p.replica.appliedAt(key(1))
		require.Greater(t, len(at), 20)
		require.Less(t, len(at), 60)
		requireBackoff(t, at, 100*time.Millisecond, 30*time.Second)
		require.Equal(t, 1, p.left.Backlog(facet))
		keys, lag := p.left.Waiting()
		require.Equal(t, 1, keys)
		require.Equal(t, 10*time.Minute, lag, "it counts from the first attempt")
		results := p.source.resultsOf(key(1))
		require.Len(t, results, len(at)/6, "now and again, so that somebody can see to it")
		require.Equal(t, converge.Result{Code: converge.Retry, Reason: errNotNow.Error()}, results[0])
	})
}

func TestRetryEndsWhenItWorks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errNotNow, key(1))
		p.source.set(key(1), object("uid1", "newer"))
		pass(10 * time.Minute)
		p.replica.heal()
		pass(31 * time.Second)
		p.requireEqual()
		keys, lag := p.left.Waiting()
		require.Zero(t, keys)
		require.Zero(t, lag)
		results := p.source.resultsOf(key(1))
		require.Equal(t, converge.Result{Code: converge.Done}, results[len(results)-1])

		// The backoff starts over.
		p.replica.mu.Lock()
		p.replica.apply, p.replica.applied[key(1)] = failing(errNotNow, key(1)), nil
		p.replica.mu.Unlock()
		p.source.set(key(1), object("uid1", "newest"))
		pass(time.Second)
		requireBackoff(t, p.replica.appliedAt(key(1)), 100*time.Millisecond, 30*time.Second)
	})
}

func TestChangeDoesNotWaitForTheBackoff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errNotNow, key(1))
		p.source.set(key(1), object("uid1", "newer"))
		pass(10 * time.Minute)
		p.replica.heal()
		p.source.set(key(1), object("uid1", "newest"))
		p.requireEqual()
	})
}

func TestRetriesBlockNoOtherKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{})
		var bad []converge.Key
		for i := range 1000 {
			bad = append(bad, key(i))
		}
		p.replica.apply = failing(errNotNow, bad...)
		p.source.fill(1500)
		p.connect()
		pass(time.Minute)
		require.Len(t, p.replica.states(), 500)
	})
}

// An apply that failed may have happened: a deletion that follows does not rely on what was known before.
func TestDeletionAfterAFailedApply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = func(_ context.Context, k converge.Key, o converge.Object) error {
			p.replica.mu.Lock()
			p.replica.objects[k] = o // the source learns of it later
			p.replica.mu.Unlock()
			return errors.New("it happened, but the answer was lost")
		}
		p.source.set(key(7), object("uid7", "new"))
		p.source.set(key(1), object("another uid", "new"))
		synctest.Wait()
		p.source.drop(key(7))
		p.source.drop(key(1))
		p.requireEqual()
		require.Len(t, p.replica.states(), 2)
	})
}

// It is not known then which source object the replica's came from, so the deletion spares none.
func TestDeletionAfterAFailedApplyNamesNoUID(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source, _, end := silentReplica(t, 1)
		send(t, end, ackOf(drain(t, end)[0], converge.Done))
		source.set(key(0), object("uid0b", "again"))
		source.set(key(1), object("uid1", "new"))
		for _, m := range drain(t, end) {
			send(t, end, ackOf(m, converge.Retry))
		}
		source.drop(key(0))
		source.drop(key(1))
		for range 2 {
			require.Empty(t, receive[converge.Delete](t, end).UID)
		}
	})
}
