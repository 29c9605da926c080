package converge_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// limited begins a session with a replica whose peer, the test, has limits. It returns which limits were reported.
func limited(t *testing.T, replica *memoryStore, l converge.Limits) (end *pipeEnd, reported func() []string) {
	t.Helper()
	reports := make(chan string, 100)
	l.Reached = func(limit, _ string) { reports <- limit }
	peer := runPeer(t, converge.Options{
		Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: replica}}, Observer: newRecordingObserver(), Budget: converge.NewBudget(l),
	})
	end = script(t, peer)
	receive[converge.Digest](t, end)
	return end, func() (all []string) {
		for len(reports) > 0 {
			all = append(all, <-reports)
		}
		return all
	}
}

// put has an object applied, and returns the Ack.
func put(t *testing.T, end *pipeEnd, seq uint64, k converge.Key, payload string) converge.Ack {
	t.Helper()
	send(t, end, converge.Put{Facet: facet, Key: k, Seq: seq, Object: object("u", payload)})
	ack := receive[converge.Ack](t, end)
	require.Equal(t, seq, ack.Seq)
	return ack
}

// A payload that would take too much memory is refused before anything is made of it, and the peer's others are applied.
func TestPayloadBeyondTheLimitsIsRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"bytes": `"` + strings.Repeat("a", 3<<19) + `"`, "values": "[" + strings.Repeat("[],", 400_000) + "[]]",
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				replica := newMemoryStore()
				end, reported := limited(t, replica, converge.Limits{})
				for seq := range uint64(3) {
					ack := put(t, end, seq+1, "large", payload)
					require.Equal(t, converge.Refused, ack.Code)
					require.Contains(t, ack.Reason, "and the limit is")
				}
				require.Empty(t, replica.appliedAt("large"))
				require.Equal(t, []string{"the size of an object"}, reported(), "once")
				require.Equal(t, converge.Done, put(t, end, 4, "small", "{}").Code)
			})
		})
	}
}

// One peer's payloads are not all decoded at a time, however many of them come.
func TestPayloadsThatAreDecodedTogetherAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		var applying, most atomic.Int32
		proceed := make(chan struct{})
		replica.apply = func(context.Context, converge.Key, converge.Object) error {
			most.Store(max(most.Load(), applying.Add(1)))
			<-proceed
			applying.Add(-1)
			return nil
		}
		end, reported := limited(t, replica, converge.Limits{})
		large := "[" + strings.Repeat("{},", 90_000) + "{}]"
		const n = 8
		for i := range n {
			send(t, end, converge.Put{Facet: facet, Key: key(i), Seq: uint64(i + 1), Object: object("u", large)})
		}
		synctest.Wait()
		require.EqualValues(t, 1, applying.Load(), "the second of 32 MiB each waits")
		require.Equal(t, []string{"memory for decoding"}, reported())
		close(proceed)
		for range n {
			require.Equal(t, converge.Done, receive[converge.Ack](t, end).Code)
		}
		require.EqualValues(t, 1, most.Load())
	})
}

// Who waits for its own memory keeps no worker from others: all of a hub's would wait for a few objects of two peers.
func TestWaitForMemoryKeepsNoWorkers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const limit = 8
		h := newHub(t, limit)
		proceed := make(chan struct{})
		goOn := sync.OnceFunc(func() { close(proceed) })
		defer goOn()
		wait := func(context.Context, converge.Key, converge.Object) error {
			<-proceed
			return nil
		}
		large := "[" + strings.Repeat("{},", 90_000) + "{}]"
		var greedy []member
		for range 4 {
			m := h.join(wait)
			greedy = append(greedy, m)
			for i := range limit {
				send(t, m.end, converge.Put{Facet: facet, Key: key(i), Seq: uint64(i + 1), Object: object("u", large)})
			}
		}
		synctest.Wait()
		require.EqualValues(t, 4, h.busy.Load(), "of each, one of 32 MiB: two are more than a peer may have")
		other := h.join(pausingApply(time.Second))
		other.put(t, 0, 10)
		pass(5 * time.Second)
		require.Len(t, other.replica.states(), 10, "two at a time: a facet has no more of eight workers, of which four are free")
		goOn()
		synctest.Wait()
		for _, m := range greedy {
			require.Len(t, m.replica.states(), limit, "nothing is lost")
		}
	})
}

// What there is already may change, and what is deleted makes room.
func TestNoMoreObjectsThanThePeerMayHave(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		replica.fill(2)
		end, reported := limited(t, replica, converge.Limits{Objects: 3})
		require.Equal(t, converge.Done, put(t, end, 1, "new", "v").Code)
		for seq := range uint64(5) {
			ack := put(t, end, 2+seq, converge.Key(fmt.Sprint("more", seq)), "v")
			require.Equal(t, converge.Refused, ack.Code)
			require.Contains(t, ack.Reason, "the limit of 3 objects")
		}
		require.Equal(t, []string{"objects of facet"}, reported())
		require.Equal(t, converge.Done, put(t, end, 10, "new", "changed").Code)
		send(t, end, converge.Delete{Facet: facet, Key: "new", Seq: 11, UID: "u"})
		require.Equal(t, converge.Done, receive[converge.Ack](t, end).Code)
		require.Equal(t, converge.Done, put(t, end, 12, "more", "v").Code)
		require.Len(t, replica.states(), 3)
	})
}

// What could not be applied, and is held by nobody, is remembered until the next resync and no longer.
func TestFailedAppliesAreForgottenByAResync(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		replica.apply = func(_ context.Context, k converge.Key, _ converge.Object) error {
			if k == "there" {
				return nil
			}
			return errors.New("there is no such application")
		}
		end, _ := limited(t, replica, converge.Limits{Objects: 10})
		for i := range 10 {
			require.Equal(t, converge.Retry, put(t, end, uint64(i+1), key(i), "v").Code)
		}
		require.Equal(t, converge.Refused, put(t, end, 11, "there", "v").Code, "the peer has used up what may be remembered for it")
		send(t, end, converge.BucketRequest{Facet: facet})
		receive[converge.Digest](t, end)
		require.Equal(t, converge.Done, put(t, end, 12, "there", "v").Code)
	})
}

// A peer that sends more than it may is read more slowly. Nothing of it is lost.
func TestChangesAreReadAtTheRateOfTheLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		end, reported := limited(t, replica, converge.Limits{Changes: 10})
		began := time.Now()
		for i := range 200 {
			require.Equal(t, converge.Done, put(t, end, uint64(i+1), key(i), "v").Code)
		}
		require.Zero(t, time.Since(began), "a burst goes through")
		require.Empty(t, reported())
		for i := range 50 {
			require.Equal(t, converge.Done, put(t, end, uint64(i+201), key(i+200), "v").Code)
		}
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.1)
		require.Equal(t, []string{"changes per second"}, reported())
		require.Len(t, replica.states(), 250)
	})
}

// Whoever comes again has what is left of its budget, and a budget that is full again need not be remembered.
func TestBudgetOutlivesAPeer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var reports []string
		budget := converge.NewBudget(converge.Limits{Changes: 10, Reached: func(limit, setting string) { reports = append(reports, limit+" "+setting) }})
		require.True(t, budget.Unused())
		for range 2 {
			replica := newMemoryStore()
			peer := runPeer(t, converge.Options{
				Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: replica}}, Observer: newRecordingObserver(), Budget: budget,
			})
			end := script(t, peer)
			receive[converge.Digest](t, end)
			for i := range 150 {
				require.Equal(t, converge.Done, put(t, end, uint64(i+1), key(i), "v").Code)
			}
			require.False(t, budget.Unused())
		}
		require.Equal(t, []string{"changes per second --agent-changes-per-second"}, reports, "the second peer has 50 of the burst of 200")
		pass(time.Minute)
		require.False(t, budget.Unused(), "what was reported is not to be reported again for an hour")
		pass(time.Hour)
		require.True(t, budget.Unused())
	})
}

// slowStore takes until listed is closed to say what it holds.
type slowStore struct {
	*memoryStore
	listed chan struct{}
}

func (s slowStore) All() iter.Seq2[converge.Key, converge.State] {
	<-s.listed
	return s.memoryStore.All()
}

// What is held counts from the first message on: a peer that sends before the first resync, and comes again and again, has no more.
func TestObjectsThatWereThereBeforeTheFirstResyncCount(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := slowStore{newMemoryStore(), make(chan struct{})}
		replica.fill(3)
		peer := runPeer(t, converge.Options{
			Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: replica}}, Observer: newRecordingObserver(),
			Budget: converge.NewBudget(converge.Limits{Objects: 3}),
		})
		end := script(t, peer)
		send(t, end, converge.Put{Facet: facet, Key: "new", Seq: 1, Object: object("u", "v")})
		synctest.Wait()
		applied := replica.appliedAt("new")
		close(replica.listed)
		require.Empty(t, applied)
		require.Equal(t, converge.Refused, receive[converge.Ack](t, end).Code)
	})
}

// Each digest costs a look at all objects.
func TestDigestsAreReadAtALimitedRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		end, _ := limited(t, replica, converge.Limits{})
		began := time.Now()
		for range 400 {
			send(t, end, converge.BucketRequest{Facet: facet})
			receive[converge.Digest](t, end)
		}
		require.InDelta(t, 10, time.Since(began).Seconds(), 0.5)
	})
}

// A peer may claim to hold any number of objects that the source does not have.
func TestUnknownObjectsOfAResyncAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		observer := newRecordingObserver()
		peer := runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: newMemoryStore()}}, Observer: observer,
		})
		end := script(t, peer)
		const claimed = 100_000
		digest := converge.Digest{Facet: facet, Resync: 1, Count: claimed, Buckets: map[converge.Bucket]converge.BucketDigest{}}
		entries := make(map[converge.Bucket][]converge.Entry)
		state := object(strings.Repeat("u", 128), "v").State
		for i := range claimed {
			k := converge.Key(fmt.Sprintf("%0512d", i))
			digest.Buckets[converge.BucketOf(k)]++
			entries[converge.BucketOf(k)] = append(entries[converge.BucketOf(k)], converge.Entry{Key: k, State: state})
		}
		send(t, end, digest)
		for _, b := range receive[converge.BucketRequest](t, end).Buckets {
			send(t, end, converge.BucketEntries{Facet: facet, Resync: 1, Bucket: b, Entries: entries[b]})
		}
		synctest.Wait()
		paused := observer.pausedDeletions()
		require.Len(t, paused, 1)
		require.Greater(t, paused[0].Deletions, 30_000)
		require.Less(t, paused[0].Deletions, 50_000, "32 MiB of names")
	})
}
