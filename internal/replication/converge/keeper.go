package converge

import (
	"context"
	"iter"
	"maps"
	"math"
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
	// Stale, if set, reports whether what is held under a key is of another source than the one that there is now. The source is
	// told of it as of something that it cannot have sent, so that it sends its own if it has one. Until then nothing is put back.
	Stale func(Key) bool
}

func (h Holding) stale(key Key) bool { return h.Stale != nil && h.Stale(key) }

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
	object Object // what is to be held, as the source sent it; the payload only if it is retained
	seen   State  // what the replica held right after: not object.State if the store changes what is written to it
	told   State  // what the source was last told is held
	doubt  bool   // object was not applied as far as is known, and seen is from before: it may have happened all the same
	owed   bool   // the source was answered Retry: whatever changes may be what that waited for, and is worth a Notice
	// altered is when the store made something else of object than it was given, zero if it did not.
	altered time.Time
}

// offerAgain is after how long, up to twice that, comparisons find an object different that the store altered: what its schema did
// not have, or a webhook changed, it may take by now. To write it again in vain costs a write that changes nothing. Objects take
// turns: an old schema alters all of them at once.
const offerAgain = time.Hour

// isDue reports whether an object is to be offered again to the store that altered it.
func (r record) isDue(key Key) bool {
	after := offerAgain + offerAgain/(math.MaxUint8+1)*time.Duration(BucketOf(key))
	return !r.altered.IsZero() && time.Since(r.altered) > after
}

// inSourceTerms returns what is held as the source would name it, given what the replica says.
func (r record) inSourceTerms(seen State) State {
	if seen == r.seen && !r.doubt {
		return r.object.State
	}
	return seen
}

func newKeeper(h Holding) *keeper {
	return &keeper{Holding: h, records: make(map[Key]record), pauses: make(map[Key]pause)}
}

// set replaces a key's record. k.mu is held.
func (k *keeper) set(key Key, r record) {
	if r.object.State == (State{}) && r.seen == (State{}) && r.told == (State{}) && !r.doubt && !r.owed {
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
			if state != (State{}) && k.stale(key) {
				state.Version = VersionOf([]byte("stale " + state.Version.String()))
			}
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
	if r.isDue(key) {
		r.told = seen // until the source has sent it, or hears of the object for another reason
	}
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
	return r.seen != seen || r.owed || r.told != r.object.State && !r.doubt
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
	if r.doubt && seen == r.object.State {
		r.seen, r.doubt = seen, false
	}
	if r.seen == seen && !r.doubt {
		return k.untold(key, r)
	}
	if wait := k.pause(key); wait > 0 {
		return finding{drift: tooSoon, pause: wait}
	}
	if r.object.Payload != nil && !k.stale(key) {
		return finding{drift: putBack, object: r.object}
	}
	r.object, r.seen = Object{State: seen}, seen
	return k.untold(key, r)
}

// untold tells what the source is to be told of a key, and counts that as told. k.mu is held.
func (k *keeper) untold(key Key, r record) finding {
	found := finding{object: r.object}
	if r.told != r.object.State || r.owed {
		r.told, r.owed, found.drift = r.object.State, false, notify
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

// apply makes the replica hold an object. What the source asks for is what is kept from then on, even if it fails: it may
// have happened all the same, and must not be undone then.
func (k *keeper) apply(ctx context.Context, key Key, obj Object) Result {
	before := k.intend(key, obj)
	held, err := k.Apply(ctx, key, obj)
	result := resultOf(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	switch result.Code {
	case Refused:
		r.object, r.seen, r.doubt = before.object, before.seen, before.doubt
	case Retry:
		r.owed = true
	case Done:
		result.Absent = held == (State{})
		switch {
		case result.Absent:
			obj = Object{}
		case !k.Retain:
			obj.Payload = nil
		}
		r = record{object: obj, seen: held, told: r.told}
		if held != obj.State {
			r.altered = time.Now()
		}
	}
	k.set(key, r)
	return result
}

// intend notes, if payloads are retained, that an object is to be held, and returns the record from before.
func (k *keeper) intend(key Key, obj Object) record {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.records[key]
	if k.Retain {
		r := before
		r.object, r.doubt = obj, true
		k.set(key, r)
	}
	return before
}

// remove makes the replica hold nothing under a key. From then on nothing is put back, even if it fails.
func (k *keeper) remove(ctx context.Context, key Key, uid string) Result {
	k.relinquish(key)
	held, err := k.Remove(ctx, key, uid)
	result := resultOf(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	switch result.Code {
	case Refused:
	case Retry:
		r.owed = true
	case Done:
		if uid != "" && held.UID != uid {
			held = State{} // it was spared; that it is there will be news to the source
		}
		r = record{seen: held, told: r.told}
	}
	k.set(key, r)
	return result
}

// relinquish forgets the payload that is retained under a key: the source has nothing there.
func (k *keeper) relinquish(key Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	r.object.Payload = nil
	if r.doubt {
		r.object, r.doubt = Object{State: r.seen}, false
	}
	k.set(key, r)
}

// acknowledged notes that the source is told how it went.
func (k *keeper) acknowledged(key Key, result Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.records[key]; result.Code == Done {
		r.told = r.object.State
		k.set(key, r)
	}
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
