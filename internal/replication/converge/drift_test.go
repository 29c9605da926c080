package converge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// syncedPair returns a connected pair whose source had n objects and has sent them.
func syncedPair(t *testing.T, n int, s pairOptions) *pair {
	t.Helper()
	p := newPair(t, s)
	p.source.fill(n)
	p.connect()
	p.requireEqual()
	return p
}

// eachRetain runs a test in a bubble, with a replica that retains what was applied and with one that does not.
func eachRetain(t *testing.T, test func(t *testing.T, retain bool)) {
	t.Helper()
	for name, retain := range map[string]bool{"retained": true, "not retained": false} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { test(t, retain) })
		})
	}
}

func TestDriftIsPutBackAtOnce(t *testing.T) {
	eachRetain(t, func(t *testing.T, retain bool) {
		p := syncedPair(t, 5, pairOptions{retain: retain})
		p.replica.set(key(1), object("uid1", "edited"))
		p.replica.drop(key(2))
		p.requireEqual()
	})
}

func TestDriftIsPutBackWhileDisconnected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := syncedPair(t, 5, pairOptions{retain: true})
		p.disconnect()
		p.replica.set(key(1), object("uid1", "edited"))
		p.replica.drop(key(2))
		p.requireEqual()
		require.Equal(t, []converge.Result{{Code: converge.Done}, {Code: converge.Done}}, p.observer.repairs)

		// What changed at the source meanwhile is found by the next resync, and only that.
		p.source.vanish(key(3))
		p.source.set(key(4), object("uid4", "newer"))
		p.connect()
		p.requireEqual()
		require.Len(t, sentOf[converge.Put](p.pipe.left), 1)
		require.Len(t, sentOf[converge.Delete](p.pipe.left), 1)
	})
}

func TestDriftWaitsForSourceUnlessRetained(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := syncedPair(t, 5, pairOptions{})
		p.disconnect()
		p.replica.set(key(1), object("uid1", "edited"))
		synctest.Wait()
		require.NotEqual(t, p.source.Held(key(1)), p.replica.Held(key(1)))
		p.connect()
		p.requireEqual()
	})
}

func TestRestoreThatFailsIsRetried(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := syncedPair(t, 1, pairOptions{retain: true})
		p.disconnect()
		p.replica.apply, p.replica.applied = failing(errInvalid, key(0)), map[converge.Key][]time.Time{}
		p.replica.set(key(0), object("uid0", "edited"))
		pass(10 * time.Minute)
		at := len(p.replica.appliedAt(key(0)))
		require.Greater(t, at, 10)
		require.Less(t, at, 50)
		p.replica.heal()
		pass(2 * time.Minute)
		p.requireEqual()
	})
}

// insist has somebody on the replica's side edit an object again whenever it is put back.
func (p *pair) insist(k converge.Key) {
	inner := p.replica.changed
	p.replica.changed = func(changed converge.Key) {
		inner(changed)
		if changed == k && p.replica.Held(k).UID != "theirs" {
			p.sessions.Go(func() { p.replica.set(k, object("theirs", "edited")) })
		}
	}
	p.replica.set(k, object("theirs", "edited"))
}

// Two that insist must not keep the API server busy, whether the object is put back from memory or by the source.
func TestRepeatedDriftIsRestoredWithBackoff(t *testing.T) {
	eachRetain(t, func(t *testing.T, retain bool) {
		p := syncedPair(t, 5, pairOptions{retain: retain})
		p.replica.applied = map[converge.Key][]time.Time{}
		p.insist(key(1))
		pass(time.Hour)
		at := p.replica.appliedAt(key(1))
		require.Greater(t, len(at), 30, "it is not given up")
		require.Less(t, len(at), 100)
		for i := 4; i < len(at)-1; i++ {
			require.GreaterOrEqual(t, at[i+1].Sub(at[i]), at[i].Sub(at[i-1]))
		}
		// Others are put back as fast as ever.
		p.replica.set(key(2), object("uid2", "edited"))
		synctest.Wait()
		require.Equal(t, p.source.Held(key(2)), p.replica.Held(key(2)))
	})
}

func TestDriftBackoffIsResetAfterAWhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := syncedPair(t, 1, pairOptions{retain: true})
		for range 5 {
			for range 3 { // a burst
				p.replica.set(key(0), object("theirs", "edited"))
				synctest.Wait()
			}
			pass(time.Minute)
			p.requireEqual()
			p.replica.set(key(0), object("theirs", "edited"))
			p.requireEqual()
			pass(time.Minute)
		}
	})
}

// A new version from the source does not wait for the end of a fight.
func TestDriftBackoffDelaysNoNewVersion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := syncedPair(t, 1, pairOptions{retain: true})
		p.insist(key(0))
		pass(time.Hour)
		p.source.set(key(0), object("theirs", "agreed"))
		p.requireEqual()
	})
}

// A Put that arrives while a look at the object finds that it is not yet time to put it back is done all the same.
func TestPutDuringDriftBackoffIsApplied(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		gate := &slowReplica{}
		p := syncedPair(t, 1, pairOptions{retain: true, wrap: func(s *memoryStore) converge.Replica { gate.memoryStore = s; return gate }})
		p.insist(key(0))
		pass(30 * time.Minute)
		gate.slow.Store(true)
		p.right.Changed(facet, key(0)) // looks, finds that it is too early
		pass(time.Millisecond)
		p.source.set(key(0), object("theirs", "agreed"))
		pass(time.Second)
		require.Equal(t, "agreed", string(p.replica.objects[key(0)].Payload))
	})
}

func TestDefaultedFieldsAreNoDrift(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{retain: true, wrap: func(s *memoryStore) converge.Replica { return defaulting{s} }})
		p.source.fill(5)
		p.connect()
		pass(time.Hour / 2)
		require.Len(t, p.replica.appliedAt(key(1)), 1)
		require.Empty(t, p.observer.repairs)
		p.left.Resync(facet)
		synctest.Wait()
		require.Len(t, sentOf[converge.Put](p.pipe.left), 5, "a comparison finds no difference either")
		p.replica.set(key(1), object("uid1", "edited"))
		synctest.Wait()
		require.Equal(t, "v1+default", string(p.replica.objects[key(1)].Payload))
	})
}

// A schema may be older than what is sent, and leaves out what it does not have. Once it has that, it gets it.
func TestPrunedFieldsAreAppliedAfterSchemaChange(t *testing.T) {
	eachRetain(t, leftOut)
}

func leftOut(t *testing.T, retain bool) {
	t.Helper()
	replica := &pruning{}
	replica.old.Store(true)
	p := newPair(t, pairOptions{
		retain: retain, resyncEvery: 5 * time.Minute,
		wrap: func(s *memoryStore) converge.Replica { replica.memoryStore = s; return replica },
	})
	p.source.fill(5)
	p.connect()
	pass(10 * time.Hour)
	applied := len(p.replica.appliedAt(key(1)))
	require.Greater(t, applied, 5, "it is offered now and then")
	require.Less(t, applied, 12)
	require.NotEqual(t, p.source.states(), p.replica.states())
	replica.old.Store(false)
	pass(2 * time.Hour)
	require.Equal(t, p.source.states(), p.replica.states())
	applied = len(p.replica.appliedAt(key(1)))
	pass(10 * time.Hour)
	require.Len(t, p.replica.appliedAt(key(1)), applied, "what is as it was sent is not sent again")
}

// pruning is a replica that leaves something out of everything while its schema is old.
type pruning struct {
	*memoryStore

	old atomic.Bool
}

func (p *pruning) Apply(ctx context.Context, k converge.Key, o converge.Object) (converge.State, error) {
	if p.old.Load() {
		o = object(o.UID, "less")
	}
	return p.memoryStore.Apply(ctx, k, o)
}

// defaulting is a replica that adds something to everything.
type defaulting struct{ *memoryStore }

func (d defaulting) Apply(ctx context.Context, k converge.Key, o converge.Object) (converge.State, error) {
	return d.memoryStore.Apply(ctx, k, object(o.UID, string(o.Payload)+"+default"))
}
