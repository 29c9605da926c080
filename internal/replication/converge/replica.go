package converge

import (
	"context"
	"iter"
	"maps"
	"math"
	"sync"
	"time"
)

// ReplicaConfig is a replica with what it takes to restore drift.
type ReplicaConfig struct {
	Replica
	// Retain keeps the payloads that were applied in memory, so that drift is restored at once, also while no peer is
	// connected. Without it, the source is asked to send the object again.
	Retain bool
	// Recall, if set, returns what was last applied under a key, when the replica object itself proves that it still is
	// that. By it a process that starts while the peer is away retains what an earlier one applied.
	Recall func(Key) (Object, bool)
	// Stale, if set, reports whether what is held under a key came from another source than there is now. It is advertised
	// with a version that no source can have, so that the source sends its own. Until then nothing is restored.
	Stale func(Key) bool
}

func (h ReplicaConfig) isStale(key Key) bool { return h.Stale != nil && h.Stale(key) }

// replicaState remembers, for each key of a replica, what was last applied and what was advertised to the source. It lives
// as long as its Peer, across sessions.
type replicaState struct {
	ReplicaConfig

	limit int // how many keys may have records, 0 for any number

	mu       sync.Mutex
	records  sparse[Key, record]  // guarded by mu; a key without a record has the zero record
	backoffs sparse[Key, backoff] // guarded by mu: the keys that were restored of late
	swept    time.Time            // guarded by mu: when expired entries of backoffs were last dropped
}

// record is what is remembered of one key.
type record struct {
	desired      Object // as the source sent it; the payload only if it is retained
	observed     State  // what the replica held right after: not desired.State if the store changes what is written to it
	advertised   State  // what was last advertised to the source
	uncertain    bool   // the apply of desired failed, and may have happened all the same; observed is from before
	retryPending bool   // the last Ack was Retry: any change may be what that waited for, and is worth a ReplicaChanged
	// alteredAt is when the store made something else of desired than it was given, zero if it did not.
	alteredAt time.Time
}

// reapplyAfter is after how long, up to twice that, resyncs report an object as different that the store altered: it may
// accept by now what its schema did not have or a webhook changed. Otherwise this costs a write that changes nothing. The
// time differs by object, since an old schema alters all of them at once.
const reapplyAfter = time.Hour

// isReapplyDue reports whether an object is to be applied again to the store that altered it.
func (r record) isReapplyDue(key Key) bool {
	after := reapplyAfter + reapplyAfter/(math.MaxUint8+1)*time.Duration(BucketOf(key))
	return !r.alteredAt.IsZero() && time.Since(r.alteredAt) > after
}

// sourceState returns the state that the source knows for what the replica observes.
func (r record) sourceState(seen State) State {
	if seen == r.observed && !r.uncertain {
		return r.desired.State
	}
	return seen
}

func newReplicaState(h ReplicaConfig, limit int) *replicaState {
	return &replicaState{ReplicaConfig: h, limit: limit}
}

// hasRoom reports whether an object may be applied: all that is held has a record since the session's first resync, and so has what
// is owed to the source.
func (k *replicaState) hasRoom(key Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.records[key]
	return known || k.limit <= 0 || len(k.records) < k.limit
}

// setRecord replaces a key's record. k.mu is held.
func (k *replicaState) setRecord(key Key, r record) {
	if r.desired.State == (State{}) && r.observed == (State{}) && r.advertised == (State{}) && !r.uncertain && !r.retryPending {
		k.records.remove(key)
		return
	}
	k.records.set(key, r)
}

// advertiseAll returns what the replica holds in the buckets that the caller is going to send to the source.
func (k *replicaState) advertiseAll(include func(Bucket) bool) iter.Seq2[Key, State] {
	return func(yield func(Key, State) bool) {
		held := make(map[Key]bool)
		for key, seen := range k.All() {
			if !include(BucketOf(key)) {
				continue
			}
			held[key] = true
			state := k.advertise(key, seen)
			if state != (State{}) && k.isStale(key) {
				state.Version = VersionOf([]byte("stale " + state.Version.String()))
			}
			if state != (State{}) && !yield(key, state) { // zero while an object is being removed: the source is done with it
				return
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		for key, r := range k.records {
			if !held[key] && include(BucketOf(key)) {
				// The source learns now that nothing is held, and knows best what to send again: nothing is owed any more.
				r.advertised, r.retryPending = State{}, false
				k.setRecord(key, r)
			}
		}
	}
}

// advertise is advertiseAll for one key under which the replica holds seen.
func (k *replicaState) advertise(key Key, seen State) State {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	r.advertised = r.sourceState(seen)
	if r.isReapplyDue(key) {
		r.advertised = seen // until the source has sent it, or the object is advertised for another reason
	}
	if r.observed != seen && r.desired.Payload == nil {
		r.desired, r.observed = Object{State: seen}, seen
	}
	k.setRecord(key, r)
	return r.advertised
}

// needsCheck reports whether a key needs checkDrift.
func (k *replicaState) needsCheck(key Key) bool {
	seen := k.Held(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	r, known := k.records[key]
	if !known && k.Retain && k.Recall != nil {
		if obj, ok := k.Recall(key); ok {
			r = record{desired: obj, observed: obj.State}
			k.setRecord(key, r)
		}
	}
	return r.observed != seen || r.retryPending || r.advertised != r.desired.State && !r.uncertain
}

// action is what a change of a replica object calls for.
type action uint8

const (
	noAction  action = iota // it is as applied and as advertised
	restore                 // apply the retained object
	advertise               // send a ReplicaChanged
	waitFirst               // check again after the backoff
)

// driftCheck is the result of checkDrift: the object to restore or to advertise, or how long to wait.
type driftCheck struct {
	action action
	object Object
	wait   time.Duration
}

// checkDrift decides what to do about a key whose object may have changed. It is called between applies, never during one.
func (k *replicaState) checkDrift(key Key) driftCheck {
	seen := k.Held(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	if r.uncertain && seen == r.desired.State {
		r.observed, r.uncertain = seen, false
	}
	if r.observed == seen && !r.uncertain {
		return k.takeUnadvertised(key, r)
	}
	if wait := k.backOff(key); wait > 0 {
		return driftCheck{action: waitFirst, wait: wait}
	}
	if r.desired.Payload != nil && !k.isStale(key) {
		return driftCheck{action: restore, object: r.desired}
	}
	r.desired, r.observed = Object{State: seen}, seen
	return k.takeUnadvertised(key, r)
}

// takeUnadvertised returns what has to be advertised of a key, and counts it as advertised. k.mu is held.
func (k *replicaState) takeUnadvertised(key Key, r record) driftCheck {
	found := driftCheck{object: r.desired}
	if r.advertised != r.desired.State || r.retryPending {
		r.advertised, r.retryPending, found.action = r.desired.State, false, advertise
	}
	k.setRecord(key, r)
	return found
}

// afterRestore returns what has to be advertised of a key that was restored: something if the drift was advertised.
func (k *replicaState) afterRestore(key Key) driftCheck {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.takeUnadvertised(key, k.records[key])
}

// apply makes the replica hold an object. What the source sent is desired from then on, even if the apply fails: it may
// have happened all the same, and must not be undone then.
func (k *replicaState) apply(ctx context.Context, key Key, obj Object) Result {
	before := k.beginApply(key, obj)
	held, err := k.Apply(ctx, key, obj)
	result := resultOf(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	switch result.Code {
	case Refused:
		r.desired, r.observed, r.uncertain = before.desired, before.observed, before.uncertain
	case Retry:
		r.retryPending = true
	case Done:
		result.Absent = held == (State{})
		switch {
		case result.Absent:
			obj = Object{}
		case !k.Retain:
			obj.Payload = nil
		}
		r = record{desired: obj, observed: held, advertised: r.advertised}
		if held != obj.State {
			r.alteredAt = time.Now()
		}
	}
	k.setRecord(key, r)
	return result
}

// beginApply notes, if payloads are retained, that an object is desired, and returns the record from before.
func (k *replicaState) beginApply(key Key, obj Object) record {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.records[key]
	if k.Retain {
		r := before
		r.desired, r.uncertain = obj, true
		k.setRecord(key, r)
	}
	return before
}

// remove makes the replica hold nothing under a key. From then on nothing is restored, even if it fails.
func (k *replicaState) remove(ctx context.Context, key Key, uid string) Result {
	k.dropPayload(key)
	held, err := k.Remove(ctx, key, uid)
	result := resultOf(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	switch result.Code {
	case Refused:
	case Retry:
		r.retryPending = true
	case Done:
		if uid != "" && held.UID != uid {
			held = State{} // it was spared, and will be advertised
		}
		r = record{observed: held, advertised: r.advertised}
	}
	k.setRecord(key, r)
	return result
}

// dropPayload forgets the payload that is retained under a key: the source has nothing there.
func (k *replicaState) dropPayload(key Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	r.desired.Payload = nil
	if r.uncertain {
		r.desired, r.uncertain = Object{State: r.observed}, false
	}
	k.setRecord(key, r)
}

// markAdvertised notes that an Ack tells the source what is held.
func (k *replicaState) markAdvertised(key Key, result Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.records[key]; result.Code == Done {
		r.advertised = r.desired.State
		k.setRecord(key, r)
	}
}

// Restoring a key, by this side or by the source, backs off from backoffFirst to backoffLast while the key is changed again
// and again: two controllers that fight over an object must not keep the API server busy. The backoff is forgotten after
// backoffForgotten of quiet.
const (
	backoffFirst     = 50 * time.Millisecond
	backoffLast      = time.Minute
	backoffForgotten = 10 * time.Second
)

// backoff is until when a key is not restored again, and how long that is from the last time.
type backoff struct {
	until  time.Time
	length time.Duration
}

func (p backoff) isExpired(now time.Time) bool { return now.Sub(p.until) > p.length+backoffForgotten }

// backOff returns how long to wait before a key may be restored. If it returns zero, the restore counts as done now. k.mu is
// held.
func (k *replicaState) backOff(key Key) time.Duration {
	now := time.Now()
	k.dropExpiredBackoffs(now)
	p, recent := k.backoffs[key]
	if wait := p.until.Sub(now); wait > 0 {
		return wait
	}
	if recent && !p.isExpired(now) {
		p.length = min(max(2*p.length, backoffFirst), backoffLast)
	} else {
		p.length = 0
	}
	p.until = now.Add(p.length)
	k.backoffs.set(key, p)
	return 0
}

// dropExpiredBackoffs forgets expired backoffs, now and then: many keys may drift at once. k.mu is held.
func (k *replicaState) dropExpiredBackoffs(now time.Time) {
	if now.Sub(k.swept) < backoffForgotten {
		return
	}
	k.swept = now
	maps.DeleteFunc(k.backoffs, func(_ Key, p backoff) bool { return p.isExpired(now) })
}
