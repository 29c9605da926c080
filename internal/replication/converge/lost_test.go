package converge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// A peer may pass over a message, for example because it cannot read it. The object is not stuck for that.
func TestUnackedMessageIsSentAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source := newMemoryStore()
		source.fill(1)
		peer := runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(),
		})
		line := script(t, peer)
		send(t, line, converge.Digest{Facet: facet, Resync: 1})
		q := receive[converge.BucketRequest](t, line)
		send(t, line, converge.BucketEntries{Facet: facet, Resync: 1, Bucket: q.Buckets[0]})
		first := receive[converge.Put](t, line)

		compare := func(round uint64) {
			send(t, line, converge.Digest{Facet: facet, Resync: round})
			q := receive[converge.BucketRequest](t, line)
			send(t, line, converge.BucketEntries{Facet: facet, Resync: round, Bucket: q.Buckets[0]})
		}
		compare(2) // at once: it may be under way
		pass(3 * time.Minute)
		compare(3)
		second := receive[converge.Put](t, line)
		require.Greater(t, second.Seq, first.Seq)
		require.Equal(t, first.Object, second.Object)
		send(t, line, converge.Ack{Facet: facet, Key: second.Key, Seq: second.Seq, Result: converge.Result{Code: converge.Done}})
		synctest.Wait()
		require.Zero(t, peer.Backlog(facet))
	})
}

// What was answered Retry is tried again as soon as the replica's object changes, since that may be what it waited for.
func TestRetryRunsAtOnceWhenReplicaChanges(t *testing.T) {
	eachRetain(t, func(t *testing.T, retain bool) {
		p := equalPair(t, 3, pairOptions{retain: retain})
		p.replica.apply = failing(errNotNow, key(1))
		p.source.set(key(1), object("uid1", "newer"))
		pass(10 * time.Minute) // it is tried every half minute by now
		p.replica.heal()
		p.right.Changed(facet, key(1))
		pass(time.Second)
		p.requireEqual()
	})
}

// But not again and again for its own failing.
func TestRetryIsNoChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errNotNow, key(1))
		p.source.set(key(1), object("uid1", "newer"))
		pass(time.Hour)
		require.Less(t, len(p.replica.appliedAt(key(1))), 300)
	})
}

// A source that still shows a refusal learns from a resync that it is overcome; nothing is reported to others.
func TestResyncClearsRefusalOfWhatIsEqual(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 300, pairOptions{})
		p.disconnect()
		p.source.refusedConditions = map[converge.Key]bool{key(7): true}
		p.source.set(key(8), object("uid8", "newer"))
		p.connect()
		p.requireEqual()
		require.Equal(t, []converge.Result{{Code: converge.Done}}, p.source.resultsOf(key(7)))
		require.Empty(t, p.source.resultsOf(key(6)))

		// Also next to one that differs, in the same bucket.
		neighbour := 0
		for converge.BucketOf(key(neighbour)) != converge.BucketOf(key(7)) || neighbour == 7 {
			neighbour++
		}
		p.disconnect()
		p.source.set(key(neighbour), object("uid", "newer"))
		p.connect()
		p.requireEqual()
		require.Len(t, p.source.resultsOf(key(7)), 2)
	})
}

// Settlements that fail, however many, hold up nothing else.
func TestFailedReportsBlockNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 5000, pairOptions{})
		var all []converge.Key
		for i := range 4000 {
			all = append(all, key(i))
		}
		p.replica.apply = failing(errInvalid, all...)
		p.source.reportResult = func(context.Context, converge.Key, converge.Result) error { return errNotNow }
		for _, k := range all {
			p.source.set(k, object("uid", "bad"))
		}
		pass(time.Minute)
		p.source.set(key(4500), object("uid", "good"))
		pass(time.Second)
		require.Equal(t, object("uid", "good").State, p.replica.Held(key(4500)))
	})
}

// A source that refuses a report does not get it again.
func TestRefusedReportIsNotRetried(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.source.reportResult = func(context.Context, converge.Key, converge.Result) error { return errInvalid }
		p.source.set(key(1), object("uid1", "newer"))
		pass(time.Hour)
		require.Len(t, p.source.resultsOf(key(1)), 1)
	})
}

// What a peer says it holds is believed only where it was asked for.
func TestEntriesOfAnotherBucketAreIgnored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source := newMemoryStore()
		source.fill(1)
		peer := runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(),
		})
		line := script(t, peer)
		send(t, line, converge.Digest{Facet: facet, Resync: 1})
		q := receive[converge.BucketRequest](t, line)
		elsewhere := 1
		for converge.BucketOf(key(elsewhere)) == q.Buckets[0] {
			elsewhere++
		}
		send(t, line, converge.BucketEntries{Facet: facet, Resync: 1, Bucket: q.Buckets[0], Entries: []converge.Entry{
			{Key: key(elsewhere), State: object("uid", "made up").State},
		}})
		require.Equal(t, key(0), receive[converge.Put](t, line).Key)
		pass(time.Hour)
		require.Equal(t, 1, peer.Backlog(facet), "nothing is to be deleted")
	})
}

// A removal is observed, whichever way it goes; putting back is not what it is.
func TestRemovalIsObserved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{retain: true})
		p.source.drop(key(1))
		p.requireEqual()
		require.Equal(t, []converge.Key{key(1)}, p.observer.removed)
		require.Empty(t, p.observer.repairs)
	})
}
