package converge_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// scriptedReplica connects a replica to a source that the test plays.
func scriptedReplica(t *testing.T, h converge.ReplicaConfig) (*converge.Peer, *pipeEnd) {
	t.Helper()
	peer := runPeer(t, converge.Options{
		Replicas: map[converge.Facet]converge.ReplicaConfig{facet: h}, Observer: newRecordingObserver(),
	})
	return peer, script(t, peer)
}

// scriptedObject is scriptedReplica for a store that has one object. The digest was received.
func scriptedObject(t *testing.T) (*memoryStore, *pipeEnd) {
	t.Helper()
	replica := newMemoryStore()
	replica.fill(1)
	peer, end := scriptedReplica(t, converge.ReplicaConfig{Replica: replica})
	replica.changed = func(k converge.Key) { peer.Changed(facet, k) }
	receive[converge.Digest](t, end)
	return replica, end
}

func TestDeleteWithAnotherUIDKeepsObject(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica, end := scriptedObject(t)
		send(t, end, converge.Delete{Facet: facet, Key: key(0), Seq: 1, UID: "another"})
		ack := receive[converge.Ack](t, end)
		require.Equal(t, converge.Done, ack.Code)
		require.True(t, replica.has(key(0)))
		// What was spared is news to the source, which may know nothing of it.
		notice := receive[converge.ReplicaChanged](t, end)
		require.Equal(t, replica.Held(key(0)), notice.State)
	})
}

func TestDeleteWithoutUIDDeletesAnyObject(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica, end := scriptedObject(t)
		send(t, end, converge.Delete{Facet: facet, Key: key(0), Seq: 1})
		require.Equal(t, converge.Done, receive[converge.Ack](t, end).Code)
		require.False(t, replica.has(key(0)))
	})
}

// An object that is deleted and created again has another UID, and a replica of the new one, made by another way, lives.
func TestRecreatedSourceObjectReplacesReplica(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.source.drop(key(1))
		p.source.set(key(1), object("uid1b", "v1"))
		p.requireEqual()
		require.Equal(t, "uid1b", p.replica.Held(key(1)).UID)
	})
}

// tombstones is a replica in which an object whose payload says so is its own deletion, and leaves nothing.
type tombstones struct{ *memoryStore }

func (r tombstones) Apply(ctx context.Context, k converge.Key, o converge.Object) (converge.State, error) {
	if string(o.Payload) == "deleting" {
		return r.Remove(ctx, k, o.UID)
	}
	return r.memoryStore.Apply(ctx, k, o)
}

func TestPutOfDeletingObjectRemovesReplica(t *testing.T) {
	eachRetain(t, func(t *testing.T, retain bool) {
		p := syncedPair(t, 3, pairOptions{retain: retain, wrap: func(s *memoryStore) converge.Replica { return tombstones{s} }})
		// The source drops an object once the replica reports that it is absent.
		p.source.reportResult = func(_ context.Context, k converge.Key, r converge.Result) error {
			if r.Absent {
				p.source.drop(k)
			}
			return nil
		}
		p.source.set(key(1), object("uid1", "deleting"))
		p.requireEqual()
		require.Len(t, p.replica.states(), 2)
		results := p.source.resultsOf(key(1))
		require.Contains(t, results, converge.Result{Code: converge.Done, Absent: true})
		require.False(t, results[0].Absent)
		p.left.Resync(facet)
		p.requireEqual()
	})
}

// lingering is a replica whose objects take a while to go: until the test drops them.
type lingering struct{ *memoryStore }

func (r lingering) Remove(_ context.Context, k converge.Key, uid string) (converge.State, error) {
	r.mu.Lock()
	r.removed[k] = append(r.removed[k], uid)
	r.mu.Unlock()
	if held := r.Held(k); held != (converge.State{}) {
		r.set(k, object(held.UID, "going"))
	}
	return r.Held(k), nil
}

// A deletion that takes its time is over for the source. A resync does not find it, nor pause it.
func TestSlowDeletionIsNeitherRepeatedNorPaused(t *testing.T) {
	eachRetain(t, func(t *testing.T, retain bool) {
		p := syncedPair(t, 50, pairOptions{retain: retain, wrap: func(s *memoryStore) converge.Replica { return lingering{s} }})
		for i := range 30 {
			p.source.drop(key(i))
		}
		synctest.Wait()
		p.left.Resync(facet)
		synctest.Wait()
		require.Empty(t, p.observer.pausedDeletions())
		require.Len(t, sentOf[converge.Delete](p.pipe.left), 30)
		require.Empty(t, sentOf[converge.ReplicaChanged](p.pipe.right))

		// When it is over nothing is put back.
		for i := range 30 {
			p.replica.drop(key(i))
		}
		pass(time.Minute)
		p.requireEqual()

		// A key that is used again while its object goes is sent, and waits.
		p.source.set(key(40), object("uid40", "last"))
		p.source.drop(key(40))
		synctest.Wait()
		p.source.set(key(40), object("uid40b", "first"))
		p.requireEqual()
	})
}

// A ReplicaChanged from before an Ack says nothing to the source, which awaits that Ack. So it does not stand for one from after.
func TestReplicaChangedFollowsTheAck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica, end := scriptedObject(t)
		for range 10 { // the line is full
			send(t, end, converge.BucketRequest{Facet: facet})
		}
		synctest.Wait()
		replica.set(key(0), object("uid", "edited"))
		synctest.Wait()
		send(t, end, converge.Delete{Facet: facet, Key: key(0), Seq: 1, UID: "another"})
		synctest.Wait()
		require.Equal(t, converge.Done, receive[converge.Ack](t, end).Code)
		require.Equal(t, replica.Held(key(0)), receive[converge.ReplicaChanged](t, end).State)
	})
}

// What changes often while the peer does not read is sent once, as it is last.
func TestReplicaChangedIsBroughtUpToDate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		replica, end := scriptedObject(t)
		for range 10 {
			send(t, end, converge.BucketRequest{Facet: facet})
		}
		synctest.Wait()
		for i := range 20 {
			replica.set(key(0), object("uid", fmt.Sprint("edited", i)))
			pass(10 * time.Minute)
		}
		require.Equal(t, replica.Held(key(0)), receive[converge.ReplicaChanged](t, end).State)
		drain(t, end)
		require.Len(t, sentOf[converge.ReplicaChanged](end.pipe.left), 1)
	})
}
