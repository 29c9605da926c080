package converge

import (
	"maps"
	"sync"
	"time"
)

// window is how many Puts and Deletes of a facet may be unanswered. It bounds what both sides buffer, and is wide
// enough that a replica applying dozens at a time never waits for messages.
const window = 256

// outbox is the source's half of a facet during one session: what the peer is known to hold, and which keys may
// differ from that.
type outbox struct {
	facet   Facet
	source  SourceConfig
	session *session
	backlog *backlog[Key] // keys to look at; a key is busy from its sending until its Ack

	mu               sync.Mutex
	resynced         bool                 // a resync is over, so held is complete. Guarded by mu, as are all fields below
	held             sparse[Key, State]   // what the peer holds, or refused; it holds nothing under keys that are missing
	uncertain        sparse[Key, bool]    // keys for which held may be wrong: they are sent whatever it says
	seq              uint64               // of the last Put or Delete
	inFlight         sparse[Key, unacked] // what was sent and is not answered
	pendingDelete    sparse[Key, bool]    // keys that may be deleted: the deletion was seen, or a resync found it and the guard let it pass
	unknownAtReplica bool                 // the peer holds, or may hold, what the source does not have: a resync is to decide
	resyncRequested  bool                 // by a BucketRequest, and not begun yet
	resync           *resync              // the one under way, if any
	heldBack         heldBack             // the deletions that wait for an operator
	unconfirmed      sparse[Key, State]   // deletions that the last resync found, and about which the source's store is being asked
	asking           []Key                // of these, those whose turn is to come
}

// unacked is a message without an Ack yet: which one, when it was sent, and what the peer holds after it. After a Delete,
// that is nothing.
type unacked struct {
	seq   uint64
	at    time.Time
	state State
}

// ackTimeout is after how long an unanswered message counts as lost: the peer has skipped it, perhaps because it could not
// decode it. An apply has timed out by then.
const ackTimeout = 2 * applyTimeout

// resync is one of which some BucketEntries are still to come.
type resync struct {
	number    uint64
	count     int                      // how many objects the replica says it holds
	awaited   map[Bucket]map[Key]State // the buckets whose BucketEntries are still to come, with what they should hold
	deletions map[Key]State            // what the replica holds and the source does not have
	seen      map[Key]State            // the same, where the source saw something go
	bytes     int                      // that these take, about
}

// newOutbox returns the outbox of a facet for a session, which is woken when there may be something to send.
func newOutbox(f Facet, source SourceConfig, s *session) *outbox {
	return &outbox{facet: f, source: source, session: s, backlog: newBacklog[Key](s.wakeUp)}
}

// sourceChanged notes that the source object under a key was seen to change or to go.
func (o *outbox) sourceChanged(k Key) {
	_, exists := o.source.Project(k)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !exists {
		if o.isUnconfirmed(k) {
			return // that may have been an older object by the same name: the answer decides
		}
		o.pendingDelete.set(k, true)
	}
	o.backlog.add(k)
}

// nextMessage returns the next Put or Delete to send, or the request for a resync; false if there is none now.
func (o *outbox) nextMessage() (Message, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.resynced && len(o.inFlight) < window {
		if o.unknownAtReplica && !o.resyncRequested {
			o.unknownAtReplica, o.resyncRequested = false, true
			return BucketRequest{Facet: o.facet}, true
		}
		key, ok := o.backlog.take()
		if !ok {
			if o.heldBack.stale {
				o.heldBack.total = max(o.heldBack.total, len(o.held)) // which was nothing when the session began, say
				o.updatePaused()
			}
			return nil, false
		}
		obj, exists := o.source.Project(key)
		peer := o.held[key]
		if peer == obj.State && !o.uncertain[key] {
			o.pendingDelete.remove(key)
			o.heldBack.drop(key)
			o.backlog.done(key)
			continue
		}
		if !exists && !o.pendingDelete[key] {
			// It was missing in a new list, and nobody saw its deletion: a resync decides.
			o.unknownAtReplica = true
			o.backlog.done(key)
			continue
		}
		if o.holdsBack(key, obj, exists, peer) || exists && !obj.Deleting && o.source.Withholds != nil && o.source.Withholds(key) {
			o.backlog.done(key)
			continue
		}
		o.seq++
		o.inFlight.set(key, unacked{o.seq, time.Now(), obj.State})
		if exists {
			o.pendingDelete.remove(key)
			return Put{Facet: o.facet, Key: key, Seq: o.seq, Object: obj, Revision: o.source.revision()}, true
		}
		if o.uncertain[key] {
			peer.UID = "" // a Put that was not acknowledged may have happened
		}
		return Delete{Facet: o.facet, Key: key, Seq: o.seq, UID: peer.UID, Revision: o.source.revision()}, true
	}
	return nil, false
}

// handleAck handles an Ack and reports whether it answers a message that was sent.
func (o *outbox) handleAck(a Ack) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	sent, ok := o.inFlight[a.Key]
	if !ok || sent.seq != a.Seq {
		return false
	}
	o.inFlight.remove(a.Key)
	o.session.wakeUp() // the window has room
	if a.Code != Done && a.Code != Refused {
		o.uncertain.set(a.Key, true)
		if o.backlog.retry(a.Key)%reportEvery == 0 {
			o.session.queueResult(o.facet, a.Key, a.Result)
		}
		o.session.peer.options.Observer.Acknowledged(a, 0)
		return true
	}
	// A refused version counts as held, so that it is not sent again before it changes. The next resync finds that it is
	// not, and so tries it once more.
	o.setHeld(a.Key, sent.state)
	if sent.state == (State{}) {
		o.pendingDelete.remove(a.Key)
	}
	lag := o.backlog.done(a.Key)
	o.session.peer.options.Observer.Acknowledged(a, lag)
	return true
}

// setHeld notes what the peer holds under a key. o.mu is held.
func (o *outbox) setHeld(k Key, s State) {
	o.uncertain.remove(k)
	if s == (State{}) {
		o.held.remove(k)
	} else {
		o.held.set(k, s)
	}
}

// handleReplicaChanged handles that the peer now holds s under a key. If a message about the key is unanswered, its Ack
// will be newer than this. A ReplicaChanged by itself deletes nothing, and nothing is remembered for a key that the
// source does not have: a resync decides about that, together with all that is like it.
func (o *outbox) handleReplicaChanged(k Key, s State) {
	obj, exists := o.source.Project(k)
	o.mu.Lock()
	defer o.mu.Unlock()
	_, flying := o.inFlight[k]
	held := o.heldBack.has(k)
	switch {
	case flying:
	case !exists && o.isUnconfirmed(k):
		if o.unconfirmed.set(k, s); s == (State{}) {
			o.unconfirmed.remove(k)
		}
	case exists && obj.State != s: // even if BucketEntries of an older state are still to come
		o.markDifferent(k)
	case exists, o.pendingDelete[k]:
		o.setHeld(k, s)
		o.backlog.add(k)
	case s == State{}:
		o.setHeld(k, s)
	case !held:
		o.unknownAtReplica = true
		o.session.wakeUp()
	}
}

// beginResync compares a Digest with the source, and returns the request for the buckets that differ, if any do.
func (o *outbox) beginResync(s Digest) (BucketRequest, bool) {
	mine := make(map[Bucket]map[Key]State)
	digests := make(map[Bucket]BucketDigest)
	for k, state := range o.source.All() {
		b := BucketOf(k)
		if mine[b] == nil {
			mine[b] = make(map[Key]State)
		}
		mine[b][k] = state
		digests[b] += entryDigest(k, state)
	}
	ask := differingBuckets(digests, s.Buckets)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resyncRequested = false
	o.resync = &resync{number: s.Resync, count: s.Count, awaited: make(map[Bucket]map[Key]State), deletions: make(map[Key]State), seen: make(map[Key]State)}
	for _, b := range ask {
		o.resync.awaited[b] = mine[b]
		delete(mine, b)
	}
	// In the other buckets the peer holds just what the source has.
	for _, states := range mine {
		for k, state := range states {
			o.markEqual(k, state)
		}
	}
	if len(ask) == 0 {
		o.finishResync()
		return BucketRequest{}, false
	}
	return BucketRequest{Facet: o.facet, Resync: s.Resync, Buckets: ask}, true
}

// handleBucketEntries compares one bucket with what the source had when the resync began: a key that changed since is in
// the backlog for that reason.
func (o *outbox) handleBucketEntries(h BucketEntries) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.resync == nil || o.resync.number != h.Resync {
		return // of a resync that a newer one has replaced
	}
	mine, awaited := o.resync.awaited[h.Bucket]
	if !awaited {
		return
	}
	delete(o.resync.awaited, h.Bucket)
	reported := make(map[Key]bool, len(h.Entries))
	for _, e := range h.Entries {
		reported[e.Key] = true
		want, ok := mine[e.Key]
		_, flying := o.inFlight[e.Key]
		switch {
		case BucketOf(e.Key) != h.Bucket: // and not where it was asked for
		case !ok && o.resync.bytes > maxUnknownBytes/len(o.session.facets): // for the next resync
		case !ok && flying && o.pendingDelete[e.Key]: // the Ack is newer than this
		case !ok:
			found := o.resync.deletions
			if o.pendingDelete[e.Key] { // a deletion was seen, if perhaps of an older object by that name
				found = o.resync.seen
			}
			found[e.Key] = e.State
			o.resync.bytes += len(e.Key) + len(e.UID) + unknownOverhead
		case want != e.State:
			o.markDifferent(e.Key)
		default:
			o.markEqual(e.Key, e.State)
		}
	}
	for k := range mine {
		if !reported[k] {
			o.markDifferent(k)
		}
	}
	if len(o.resync.awaited) == 0 {
		o.finishResync()
	}
}

// reportEvery is after how many failures in a row the source gets a report, which it can show to users: the first six take
// some five seconds, all others three minutes.
const reportEvery = 6

// markDifferent has a key sent that the peer does not hold as it should. o.mu is held.
func (o *outbox) markDifferent(k Key) {
	o.uncertain.set(k, true)
	o.backlog.add(k)
}

// markHeld notes what the peer says it holds, unless this session has newer knowledge or is uncertain. o.mu is held.
func (o *outbox) markHeld(k Key, s State) {
	_, known := o.held[k]
	_, flying := o.inFlight[k]
	if !known && !flying && !o.uncertain[k] {
		o.held.set(k, s)
	}
}

// markEqual notes that the peer holds an object as it should. If the source still shows that the object was refused, it is
// told that this is over. o.mu is held.
func (o *outbox) markEqual(k Key, s State) {
	o.markHeld(k, s)
	_, flying := o.inFlight[k]
	if !flying && !o.uncertain[k] && o.held[k] == s && o.source.HasRefusedCondition(k) {
		o.session.queueResult(o.facet, k, Result{Code: Done})
	}
}

// finishResync ends a resync: deletions by decision go at once, and others pass the guard or are paused by it. o.mu is held.
func (o *outbox) finishResync() {
	r, first := o.resync, !o.resynced
	o.resync, o.resynced = nil, true
	o.session.wakeUp()
	for k, s := range o.inFlight {
		if time.Since(s.at) > ackTimeout {
			o.inFlight.remove(k)
			o.uncertain.set(k, true)
			o.backlog.retry(k)
		}
	}
	decided := o.source.takeRevoked(r.deletions)
	let := r.seen
	maps.Copy(let, decided)
	h := &o.heldBack
	o.takeAlong(r.deletions)
	h.found, h.total = nil, r.count-len(decided)
	if o.guardHolds(len(r.deletions)) && !h.passed[newPausedDeletions(o.facet, r.deletions, h.along, h.total).Token] {
		h.found = r.deletions
	} else {
		maps.Copy(let, r.deletions)
	}
	o.confirm(let)
	o.updatePaused()
	if first {
		o.session.peer.noteCompared(o.facet)
	}
}

// guardHolds reports whether an operator has to confirm so many deletions that a resync found. Together with those that wait they
// may be all that the replica holds. o.mu is held.
func (o *outbox) guardHolds(found int) bool {
	h := &o.heldBack
	all := !o.source.OnlyShown && found+len(h.along) >= h.total
	return !o.source.GuardExempt && o.session.peer.guard().holds(found, h.total, all)
}

// scheduleDeletes has keys deleted. o.mu is held.
func (o *outbox) scheduleDeletes(deletion map[Key]State) {
	for k, s := range deletion {
		if _, flying := o.inFlight[k]; flying {
			o.uncertain.set(k, true)
		} else {
			o.setHeld(k, s)
		}
		o.pendingDelete.set(k, true)
		o.backlog.add(k)
	}
}

// size returns the number of keys that may differ from what the peer holds.
func (o *outbox) size() int { return o.backlog.size() }
