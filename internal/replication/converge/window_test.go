package converge_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// ackOf is a scripted replica's answer to a Put.
func ackOf(m converge.Put, c converge.Code) converge.Ack {
	return converge.Ack{Facet: m.Facet, Key: m.Key, Seq: m.Seq, Result: converge.Result{Code: c}}
}

// silentReplica connects a source of n objects to a replica that the test plays, and that holds nothing.
func silentReplica(t *testing.T, n int) (*memoryStore, *converge.Peer, *pipeEnd) {
	t.Helper()
	source := newMemoryStore()
	source.fill(n)
	peer := runPeer(t, converge.Options{
		Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(),
	})
	source.changed = func(k converge.Key) { peer.Changed(facet, k) }
	end := script(t, peer)
	send(t, end, converge.Digest{Facet: facet, Resync: 1})
	if n == 0 {
		return source, peer, end // both hold nothing: there is nothing to ask
	}
	for _, b := range receive[converge.BucketRequest](t, end).Buckets {
		send(t, end, converge.BucketEntries{Facet: facet, Resync: 1, Bucket: b})
	}
	return source, peer, end
}

// drain takes what has been sent by now.
func drain(t *testing.T, e *pipeEnd) []converge.Put {
	t.Helper()
	var out []converge.Put
	for {
		synctest.Wait()
		select {
		case m := <-e.in:
			if m, ok := m.(converge.Put); ok {
				out = append(out, m)
			}
		default:
			return out
		}
	}
}

func TestWindowLimitsUnackedMessages(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, peer, end := silentReplica(t, 1000)
		puts := drain(t, end)
		require.Len(t, puts, 256)
		require.Equal(t, 1000, peer.Backlog(facet))
		pass(time.Hour)
		require.Empty(t, drain(t, end), "nobody answered")

		// Each answer makes room for one.
		arrived := map[converge.Key]bool{}
		for len(puts) > 0 {
			m := puts[0]
			puts = puts[1:]
			arrived[m.Key] = true
			send(t, end, ackOf(m, converge.Done))
			puts = append(puts, drain(t, end)...)
			require.LessOrEqual(t, len(puts), 256)
		}
		require.Len(t, arrived, 1000)
		require.Zero(t, peer.Backlog(facet))
	})
}

func TestOneMessagePerKeyIsUnanswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source, _, end := silentReplica(t, 1)
		first := drain(t, end)
		require.Len(t, first, 1)
		for _, v := range []string{"a", "b", "c"} {
			source.set(key(0), object("uid0", v))
			require.Empty(t, drain(t, end))
		}
		send(t, end, ackOf(first[0], converge.Done))
		last := drain(t, end)
		require.Len(t, last, 1, "what changed often is sent once")
		require.Equal(t, "c", string(last[0].Payload))
		require.Greater(t, last[0].Seq, first[0].Seq)
	})
}

func TestUnexpectedAckIsIgnored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source, peer, end := silentReplica(t, 1)
		m := drain(t, end)[0]
		wrong := ackOf(m, converge.Done)
		wrong.Seq++
		send(t, end, wrong)
		send(t, end, converge.Ack{Facet: facet, Key: "unheard of", Seq: m.Seq, Result: converge.Result{Code: converge.Done}})
		send(t, end, converge.Ack{Facet: "unheard of", Key: m.Key, Seq: m.Seq, Result: converge.Result{Code: converge.Done}})
		synctest.Wait()
		require.Equal(t, 1, peer.Backlog(facet))
		require.Empty(t, source.resultsOf(key(0)))
		send(t, end, ackOf(m, converge.Done))
		send(t, end, ackOf(m, converge.Done))
		synctest.Wait()
		require.Zero(t, peer.Backlog(facet))
		require.Len(t, source.resultsOf(key(0)), 1)
	})
}

// An unknown code is treated as Retry: the object is sent again.
func TestUnknownCodeIsARetry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, peer, end := silentReplica(t, 1)
		m := drain(t, end)[0]
		send(t, end, ackOf(m, converge.Code(77)))
		pass(time.Second)
		again := drain(t, end)
		require.Len(t, again, 1)
		send(t, end, ackOf(again[0], converge.Done))
		synctest.Wait()
		require.Zero(t, peer.Backlog(facet))
	})
}

func TestUnackedKeyDoesNotBlockOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source, peer, end := silentReplica(t, 1000)
		var stuck converge.Key
		for i := 0; ; i++ {
			puts := drain(t, end)
			if len(puts) == 0 {
				break
			}
			for _, m := range puts {
				if stuck == "" {
					stuck = m.Key
				}
				if m.Key != stuck {
					send(t, end, ackOf(m, converge.Done))
				}
			}
		}
		require.Equal(t, 1, peer.Backlog(facet))
		source.set(key(1000), object("uid", "v"))
		require.Len(t, drain(t, end), 1)
	})
}

// Nothing is sent before the first resync is over: the source would not know what to leave out.
func TestNothingIsSentBeforeTheResync(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source := newMemoryStore()
		source.fill(10)
		peer := runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(),
		})
		source.changed = func(k converge.Key) { peer.Changed(facet, k) }
		end := script(t, peer)
		source.set(key(1), object("uid1", "changed"))
		source.drop(key(2))
		pass(time.Hour)
		require.Empty(t, drain(t, end))
		send(t, end, converge.Digest{Facet: facet, Resync: 1})
		q := receive[converge.BucketRequest](t, end)
		require.NotEmpty(t, q.Buckets)
		for _, b := range q.Buckets[1:] {
			send(t, end, converge.BucketEntries{Facet: facet, Resync: 1, Bucket: b})
		}
		require.Empty(t, drain(t, end), "one bucket is missing")
		send(t, end, converge.BucketEntries{Facet: facet, Resync: 1, Bucket: q.Buckets[0]})
		require.Len(t, drain(t, end), 9)
	})
}
