package converge_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

func TestUnknownFacetIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		_, end := scriptedReplica(t, converge.ReplicaConfig{Replica: replica})
		send(t, end, converge.Put{Facet: "newer", Key: "k", Seq: 1, Object: object("u", "v")})
		ack := receive[converge.Ack](t, end)
		require.Equal(t, converge.Facet("newer"), ack.Facet)
		require.Equal(t, converge.Refused, ack.Code)
		require.Contains(t, ack.Reason, "newer")
		send(t, end, converge.Delete{Facet: "newer", Key: "k", Seq: 2})
		require.Equal(t, converge.Refused, receive[converge.Ack](t, end).Code)

		// The session goes on.
		send(t, end, converge.Put{Facet: facet, Key: "k", Seq: 1, Object: object("u", "v")})
		require.Equal(t, converge.Done, receive[converge.Ack](t, end).Code)
		require.True(t, replica.has("k"))
	})
}

// A peer may not write what this side has the truth of.
func TestSourceTakesNoPut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source, _, end := silentReplica(t, 0)
		send(t, end, converge.Put{Facet: facet, Key: "k", Seq: 1, Object: object("u", "v")})
		require.Equal(t, converge.Refused, receive[converge.Ack](t, end).Code)
		require.Empty(t, source.states())
	})
}

func TestMessagesThatNeedNoAnswerAreIgnored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		_, end := scriptedReplica(t, converge.ReplicaConfig{Replica: replica})
		receive[converge.Digest](t, end)
		for _, f := range []converge.Facet{facet, "newer"} { // of facet, this side is not the source
			send(t, end, converge.ReplicaChanged{Facet: f, Key: "k", State: object("u", "v").State})
			send(t, end, converge.Ack{Facet: f, Key: "k", Seq: 1})
			send(t, end, converge.Digest{Facet: f, Resync: 1})
			send(t, end, converge.BucketEntries{Facet: f, Resync: 1})
		}
		send(t, end, converge.BucketRequest{Facet: "newer"})
		synctest.Wait()
		require.Empty(t, end.in)
	})
}

// A facet that the peer does not know stops none of the others.
func TestFacetThatOnlyOneSideKnows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{})
		other := newMemoryStore()
		other.fill(10)
		p.left = runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{
				facet: {Source: p.source}, "newer": {Source: other},
			},
			Observer: p.observer,
		})
		p.source.fill(10)
		p.connect()
		p.requireEqual()
		p.left.Changed("newer", key(1))
		p.left.Resync("newer")
		p.left.Changed("newest", key(1))
		p.left.Resync("newest")
		p.source.set(key(1), object("uid1", "newer"))
		p.requireEqual()
	})
}

func TestDuplicateMessageIsAppliedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		_, end := scriptedReplica(t, converge.ReplicaConfig{Replica: replica})
		receive[converge.Digest](t, end)
		put := converge.Put{Facet: facet, Key: "k", Seq: 1, Object: object("u", "v")}
		send(t, end, put)
		receive[converge.Ack](t, end)
		send(t, end, converge.Delete{Facet: facet, Key: "k", Seq: 2})
		receive[converge.Ack](t, end)
		send(t, end, put)
		synctest.Wait()
		require.False(t, replica.has("k"))
		require.Empty(t, end.in)
	})
}

// heap returns how much memory is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// flood sends what make makes until the other side takes no more, or n times, and returns how much it took.
func flood(e *pipeEnd, n int, next func(i int) converge.Message) int {
	for i := range n {
		synctest.Wait()
		select {
		case e.out <- next(i):
		default:
			return i
		}
	}
	return n
}

// A peer that sends and never reads is made to wait.
func TestFloodOfPutsIsThrottled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		hang := make(chan struct{})
		replica.apply = func(ctx context.Context, _ converge.Key, _ converge.Object) error {
			select {
			case <-hang:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		_, end := scriptedReplica(t, converge.ReplicaConfig{Replica: replica})
		taken := flood(end, 100_000, func(i int) converge.Message {
			return converge.Put{Facet: facet, Key: key(i), Seq: uint64(i + 1), Object: object("u", "v")}
		})
		require.Less(t, taken, 3000)
		require.Greater(t, taken, 256)

		// It goes on when there is room again.
		close(hang)
		for i := taken; i < taken+500; i++ {
			drain(t, end)
			send(t, end, converge.Put{Facet: facet, Key: key(i), Seq: uint64(i + 1), Object: object("u", "v")})
		}
		drain(t, end)
		require.Len(t, replica.states(), taken+500)
	})
}

func TestFloodOfBucketRequestsIsThrottled(t *testing.T) {
	for name, ask := range map[string]func(i int) converge.Message{
		"unknown facets": func(i int) converge.Message {
			return converge.Delete{Facet: "newer", Key: key(i), Seq: uint64(i + 1)}
		},
		"requests for entries": func(i int) converge.Message {
			return converge.BucketRequest{Facet: facet, Resync: uint64(i), Buckets: []converge.Bucket{1}}
		},
		"requests for digests": func(int) converge.Message { return converge.BucketRequest{Facet: facet} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				replica := newMemoryStore()
				replica.fill(10)
				_, end := scriptedReplica(t, converge.ReplicaConfig{Replica: replica})
				require.Less(t, flood(end, 100_000, ask), 3000)
			})
		})
	}
}

// A bucket is reported once, however often it is asked for.
func TestBucketRequestThatRepeatsItself(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica := newMemoryStore()
		replica.fill(10)
		_, end := scriptedReplica(t, converge.ReplicaConfig{Replica: replica})
		receive[converge.Digest](t, end)
		q := converge.BucketRequest{Facet: facet, Resync: 1}
		for i := range 100_000 {
			q.Buckets = append(q.Buckets, converge.Bucket(i%3))
		}
		send(t, end, q)
		for b := range 3 {
			require.Equal(t, converge.Bucket(b), receive[converge.BucketEntries](t, end).Bucket)
		}
		synctest.Wait()
		require.Empty(t, end.in)
	})
}

// What the peer claims to hold is not remembered, unless the source has it too.
func TestUnknownKeysOfPeerTakeNoMemory(t *testing.T) { // alone, for it measures
	unknown := func(i int) converge.Key { return converge.Key(fmt.Sprintf("unknown-%0100d", i)) }
	for name, claim := range map[string]func(i int) converge.Message{
		"changes": func(i int) converge.Message {
			return converge.ReplicaChanged{Facet: facet, Key: unknown(i), State: object("u", "v").State}
		},
		"empty changes": func(i int) converge.Message { return converge.ReplicaChanged{Facet: facet, Key: unknown(i)} },
		"unrequested bucket entries": func(i int) converge.Message {
			return converge.BucketEntries{Facet: facet, Resync: 7, Entries: []converge.Entry{{Key: unknown(i)}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				_, peer, end := silentReplica(t, 300)
				require.Len(t, drain(t, end), 256) // and answers none
				before := heap()
				const n = 50_000
				for i := range n {
					end.out <- claim(i)
				}
				drain(t, end)
				require.Equal(t, 300, peer.Backlog(facet))
				require.Less(t, heap(), before+4<<20)
			})
		})
	}
}

// Resyncs that each claim other objects, none of which the source has.
func TestFloodOfResyncsTakesNoMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, _, end := silentReplica(t, 0)
		before := heap()
		const each = 2000
		for round := range uint64(50) {
			bucket := converge.Bucket(7)
			send(t, end, converge.Digest{Facet: facet, Resync: round + 2, Count: each, Buckets: map[converge.Bucket]converge.BucketDigest{bucket: 1}})
			receive[converge.BucketRequest](t, end)
			h := converge.BucketEntries{Facet: facet, Resync: round + 2, Bucket: bucket}
			for i := range each {
				k := converge.Key(fmt.Sprintf("unknown-%0100d-%d", i, round))
				h.Entries = append(h.Entries, converge.Entry{Key: k, State: object("u", "v").State})
			}
			send(t, end, h)
			synctest.Wait()
		}
		end.mu.Lock()
		end.sent = nil
		end.mu.Unlock()
		require.Less(t, heap(), before+4<<20)
	})
}

// Two honest peers, of which each has a great deal to tell at once, do not wait for each other for good.
func TestFloodOfReplicaChangedBothWays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 6000
		stores := map[converge.Facet][2]*memoryStore{"down": {newMemoryStore(), newMemoryStore()}, "up": {newMemoryStore(), newMemoryStore()}}
		w := newRecordingObserver()
		left := runPeer(t, converge.Options{
			Sources:  map[converge.Facet]converge.SourceConfig{"down": {Source: stores["down"][0]}},
			Replicas: map[converge.Facet]converge.ReplicaConfig{"up": {Replica: stores["up"][1]}},
			Observer: w, ResyncEvery: 1000 * time.Hour,
		})
		right := runPeer(t, converge.Options{
			Sources:  map[converge.Facet]converge.SourceConfig{"up": {Source: stores["up"][0]}},
			Replicas: map[converge.Facet]converge.ReplicaConfig{"down": {Replica: stores["down"][1]}},
			Observer: w, ResyncEvery: 1000 * time.Hour,
		})
		for _, s := range stores {
			s[0].fill(n)
			s[1].fill(n)
		}
		line := newPipe(4)
		talk := runSessions(t, line, left, right)
		defer talk.Wait()
		defer line.cut()
		synctest.Wait()
		stores["up"][1].changed = func(k converge.Key) { left.Changed("up", k) }
		stores["down"][1].changed = func(k converge.Key) { right.Changed("down", k) }
		line.hold() // a slow moment, in which everything changes
		for i := range n {
			stores["down"][1].set(key(i), object("uid", "edited"))
			stores["up"][1].set(key(i), object("uid", "edited"))
		}
		pass(time.Minute)
		line.resume()
		pass(time.Hour)
		for f, s := range stores {
			require.True(t, maps.Equal(s[0].states(), s[1].states()), "facet %s", f)
		}
	})
}
