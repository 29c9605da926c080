package converge_test

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// scriptedMessage makes a message of eight bytes of a fuzzer's.
func scriptedMessage(b []byte) converge.Message {
	f, k, n := converge.Facet("source"), key(int(b[2]%5)), uint64(binary.BigEndian.Uint16(b[3:]))
	if b[1]%2 == 0 {
		f = "replica"
	}
	state := object(string(rune('a'+b[5]%3)), string(rune('a'+b[6]%3))).State
	if b[7]%4 == 0 {
		state = converge.State{}
	}
	switch b[0] % 7 {
	case 0:
		return converge.Put{Facet: f, Key: k, Seq: n, Object: converge.Object{State: state, Payload: b}}
	case 1:
		return converge.Delete{Facet: f, Key: k, Seq: n, UID: state.UID}
	case 2:
		return converge.Ack{Facet: f, Key: k, Seq: n, Result: converge.Result{Code: converge.Code(b[5] % 5), Absent: b[6]%2 == 0, Reason: "because"}}
	case 3:
		return converge.ReplicaChanged{Facet: f, Key: k, State: state}
	case 4:
		return converge.Digest{
			Facet: f, Resync: n % 4, Count: int(b[5]) - 100,
			Buckets: map[converge.Bucket]converge.BucketDigest{converge.BucketOf(k): converge.BucketDigest(b[6])},
		}
	case 5:
		return converge.BucketRequest{Facet: f, Resync: n % 4, Buckets: []converge.Bucket{converge.BucketOf(k), converge.Bucket(b[5])}[:b[6]%3]}
	default:
		return converge.BucketEntries{Facet: f, Resync: n % 4, Bucket: converge.BucketOf(k), Entries: []converge.Entry{{Key: k, State: state}, {Key: key(int(b[5] % 5)), State: state}}}
	}
}

// Whatever a peer says, in whatever order, it changes nothing of which this side has the truth, and the session goes on for all that is
// well: an object that is sent then is applied.
func FuzzSession(f *testing.F) {
	f.Add([]byte("\x04\x01\x00\x00\x01\x64\x00\x01\x06\x01\x00\x00\x01\x00\x00\x01"))
	f.Add([]byte("\x00\x00\x01\x00\x01\x01\x01\x01\x01\x00\x01\x00\x02\x01\x01\x01\x05\x00\x01\x00\x01\x01\x02\x01"))
	f.Add([]byte("\x04\x01\x02\x00\x01\xff\x09\x01\x06\x01\x02\x00\x01\x02\x02\x01\x02\x01\x02\x00\x01\x01\x02\x01\x03\x01\x02\x00\x01\x01\x02\x01"))
	f.Fuzz(func(t *testing.T, input []byte) {
		bubble.Test(t, func(t *testing.T) {
			source, replica := newMemoryStore(), newMemoryStore()
			source.fill(3)
			before := source.states()
			peer := runPeer(t, converge.Options{
				Sources:  map[converge.Facet]converge.SourceConfig{"source": {Source: source}},
				Replicas: map[converge.Facet]converge.ReplicaConfig{"replica": {Replica: replica, Retain: true}},
				Observer: newRecordingObserver(), Budget: converge.NewBudget(converge.Limits{Objects: 4, Changes: 100}),
			})
			source.changed = func(k converge.Key) { peer.Changed("source", k) }
			replica.changed = func(k converge.Key) { peer.Changed("replica", k) }
			end := script(t, peer)
			for len(input) >= 8 {
				send(t, end, scriptedMessage(input[:8]))
				input = input[8:]
				drain(t, end)
			}
			require.Equal(t, before, source.states())
			held := replica.states()
			maps.DeleteFunc(held, func(_ converge.Key, s converge.State) bool { return s == converge.State{} }) // a source that has no object sends none
			require.LessOrEqual(t, len(held), 4)
			if len(held) == 0 {
				return
			}
			k := slices.Min(slices.Collect(maps.Keys(held)))
			send(t, end, converge.Put{Facet: "replica", Key: k, Seq: 1 << 20, Object: object("z", "last")})
			for receive[converge.Ack](t, end).Seq != 1<<20 {
				continue // with those that are for earlier messages
			}
			synctest.Wait()
			require.Equal(t, object("z", "last").State, replica.Held(k))
		})
	})
}
