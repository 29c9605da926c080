package converge

import (
	"context"
	"iter"
	"maps"
	"sync"
	"time"
)

// Holding is a replica with what it takes to keep it as it was last applied.
type Holding struct {
	Replica
	// Retain keeps the payloads that were applied in memory, so that what changes behind the replica's back is put back
	// at once, also while no peer is connected. Without it, the source is asked to send the object again.
	Retain bool
	// Recall, if set, tells what was last applied under a key, when the replica's object itself can prove that it still
	// is that. By it a process that starts while the peer is away retains what an earlier one applied.
	Recall func(Key) (Object, bool)
}

// keeper remembers, for each key of a replica, what was last applied and what the source believes. It lives as long as
// its Peer, across connections.
type keeper struct {
	Holding

	mu      sync.Mutex
	records map[Key]record // guarded by mu; a key without a record has the zero record
	pauses  map[Key]pause  // guarded by mu: the keys that were put back of late
	swept   time.Time      // guarded by mu: when pauses was last rid of what is over
}

// record is what is remembered of one key.
type record struct {
	object Object // what was applied, as the source sent it; the payload only if it is retained
	seen   State  // what the replica held right after: not object.State if the store changes what is written to it
	told   State  // what the source was last told is held
}

// inSourceTerms returns what is held as the source would name it, given what the replica says.
func (r record) inSourceTerms(seen State) State {
	if seen == r.seen {
		return r.object.State
	}
	return seen
}

func newKeeper(h Holding) *keeper {
	return &keeper{Holding: h, records: make(map[Key]record), pauses: make(map[Key]pause)}
}

// set replaces a key's record. k.mu is held.
func (k *keeper) set(key Key, r record) {
	if r.object.State == (State{}) && r.seen == (State{}) && r.told == (State{}) {
		delete(k.records, key)
		return
	}
	k.records[key] = r
}

// tell returns what the replica holds in the buckets that the caller is going to tell the source of, in the source's terms.
func (k *keeper) tell(include func(Bucket) bool) iter.Seq2[Key, State] {
	return func(yield func(Key, State) bool) {
		held := make(map[Key]bool)
		for key, seen := range k.All() {
			if !include(BucketOf(key)) {
				continue
			}
			held[key] = true
			state := k.tellOne(key, seen)
			if state != (State{}) && !yield(key, state) { // the source is done with what is being removed
				return
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		for key, r := range k.records {
			if !held[key] && include(BucketOf(key)) {
				r.told = State{}
				k.set(key, r)
			}
		}
	}
}

// tellOne is tell for one key under which the replica holds seen.
func (k *keeper) tellOne(key Key, seen State) State {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	r.told = r.inSourceTerms(seen)
	if r.seen != seen && r.object.Payload == nil {
		r.object, r.seen = Object{State: seen}, seen
	}
	k.set(key, r)
	return r.told
}

// moved reports whether a key needs to be examined.
func (k *keeper) moved(key Key) bool {
	seen := k.Held(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	r, known := k.records[key]
	if !known && k.Retain && k.Recall != nil {
		if obj, ok := k.Recall(key); ok {
			r = record{object: obj, seen: obj.State}
			k.set(key, r)
		}
	}
	return r.seen != seen || r.told != r.object.State
}

// drift is what a change of a replica's object calls for.
type drift uint8

const (
	unchanged drift = iota // it is as it was applied, and as the source believes
	putBack                // it is to be put back from memory
	notify                 // the source is to be told
	tooSoon                // it is to be looked at again after a pause
)

// finding is what an examination found: the object to put back, or what to tell the source, or how long to pause.
type finding struct {
	drift  drift
	object Object
	pause  time.Duration
}

// examine tells what to do about a key whose object may have changed. It is called between applies, never during one.
func (k *keeper) examine(key Key) finding {
	seen := k.Held(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	if r.seen == seen {
		return k.untold(key, r)
	}
	if wait := k.pause(key); wait > 0 {
		return finding{drift: tooSoon, pause: wait}
	}
	if r.object.Payload != nil {
		return finding{drift: putBack, object: r.object}
	}
	r.object, r.seen = Object{State: seen}, seen
	return k.untold(key, r)
}

// untold tells what the source is to be told of a key, and counts that as told. k.mu is held.
func (k *keeper) untold(key Key, r record) finding {
	found := finding{object: r.object}
	if r.told != r.object.State {
		r.told, found.drift = r.object.State, notify
	}
	k.set(key, r)
	return found
}

// restored tells what the source is to be told of a key that was put back: something if it heard of the drift.
func (k *keeper) restored(key Key) finding {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.untold(key, k.records[key])
}

// apply makes the replica hold an object. The source learns of it by the Ack, unless it is asked for by nobody: then
// told stays, and the next examination tells what needs to be.
func (k *keeper) apply(ctx context.Context, key Key, obj Object, asked bool) Result {
	held, err := k.Apply(ctx, key, obj)
	r := resultOf(err)
	if r.Code != Done {
		// It may have happened all the same. The next attempt, or the next comparison, finds out; until then what was
		// applied before is what is kept.
		return r
	}
	r.Absent = held == (State{})
	switch {
	case r.Absent:
		obj = Object{}
	case !k.Retain:
		obj.Payload = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	told := obj.State
	if !asked {
		told = k.records[key].told
	}
	k.set(key, record{object: obj, seen: held, told: told})
	return r
}

// remove makes the replica hold nothing under a key.
func (k *keeper) remove(ctx context.Context, key Key, uid string) Result {
	held, err := k.Remove(ctx, key, uid)
	r := resultOf(err)
	if r.Code != Done {
		return r
	}
	if uid != "" && held.UID != uid {
		held = State{} // it was spared; that it is there will be news to the source
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(key, record{seen: held})
	return r
}

// Putting back, by this side or by the source, waits ever longer, from pauseFirst to pauseLast, for a key that is changed
// again and again: somebody on this side insists, and two that insist must not keep the API server busy. It is forgotten
// after pauseForgotten of quiet.
const (
	pauseFirst     = 50 * time.Millisecond
	pauseLast      = time.Minute
	pauseForgotten = 10 * time.Second
)

// pause is until when a key is not put back again, and how long that is from the last time.
type pause struct {
	until  time.Time
	length time.Duration
}

func (p pause) isOver(now time.Time) bool { return now.Sub(p.until) > p.length+pauseForgotten }

// pause returns how long to wait before a key may be put back; if that is not at all, it counts as done now. k.mu is held.
func (k *keeper) pause(key Key) time.Duration {
	now := time.Now()
	k.sweep(now)
	p, recent := k.pauses[key]
	if wait := p.until.Sub(now); wait > 0 {
		return wait
	}
	if recent && !p.isOver(now) {
		p.length = min(max(2*p.length, pauseFirst), pauseLast)
	} else {
		p.length = 0
	}
	p.until = now.Add(p.length)
	k.pauses[key] = p
	return 0
}

// sweep forgets the pauses that are over, now and then: many keys may drift at once. k.mu is held.
func (k *keeper) sweep(now time.Time) {
	if now.Sub(k.swept) < pauseForgotten {
		return
	}
	k.swept = now
	maps.DeleteFunc(k.pauses, func(_ Key, p pause) bool { return p.isOver(now) })
}
