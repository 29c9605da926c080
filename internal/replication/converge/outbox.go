package converge

import (
	"sync"
	"time"
)

// window is how many Puts and Deletes of a facet may be unanswered. It bounds what both sides buffer, and is wide
// enough that a replica applying dozens at a time is never idle for want of messages.
const window = 256

// outbox is the source's half of a facet during one conversation: what the peer is known to hold, and which keys may
// differ from that.
type outbox struct {
	facet   Facet
	source  Origin
	session *session
	backlog *backlog[Key] // keys to look at; a key is busy from its sending until its Ack

	mu       sync.Mutex
	compared bool            // a comparison is over, so known is complete. Guarded by mu, as are all fields below
	known    map[Key]State   // what the peer holds, or refused; a key that is missing holds nothing
	unsure   map[Key]bool    // keys for which known may be wrong: they are sent whatever known says
	seq      uint64          // of the last Put or Delete
	flight   map[Key]sent    // what was sent and is not answered
	doomed   map[Key]bool    // keys that may be deleted: that was seen to happen, or a comparison found it and the brake let it pass
	stray    bool            // the peer holds what the source does not know of, or may: a comparison is to judge
	asked    bool            // for a comparison, which has not begun
	round    *round          // the comparison under way, if any
	brake    *Brake          // the deletions that wait for a person's word, if any
	held     map[Key]State   // their keys
	released map[string]bool // the words that were given
}

// sent is a message that is not answered: which one, when it was sent, and what the peer then holds. After a Delete, that
// is nothing.
type sent struct {
	seq   uint64
	at    time.Time
	state State
}

// lostAfter is when a message counts as lost that is not answered: the peer has passed over it, perhaps because it could
// not read it. Its patience is over by then.
const lostAfter = 2 * patience

// round is a comparison of which some answers are still to come.
type round struct {
	number   uint64
	count    int                      // what the replica said it holds
	awaited  map[Bucket]map[Key]State // the buckets whose Holdings are still to come, with what they should hold
	deletion map[Key]State            // what the replica holds and the source does not have
}

// newOutbox returns the outbox of a facet for a conversation, which is woken when there may be something to send.
func newOutbox(f Facet, source Origin, s *session) *outbox {
	return &outbox{
		facet: f, source: source, session: s, backlog: newBacklog[Key](s.wake),
		known: make(map[Key]State), unsure: make(map[Key]bool), flight: make(map[Key]sent),
		doomed: make(map[Key]bool), released: make(map[string]bool),
	}
}

// changed notes that the source's object under a key changed, or went, before our eyes.
func (o *outbox) changed(k Key) {
	_, exists := o.source.Project(k)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !exists {
		o.doomed[k] = true
	}
	o.backlog.add(k)
}

// next returns the next Put or Delete to send, or the question for a comparison; false if there is none now.
func (o *outbox) next() (Message, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.compared && len(o.flight) < window {
		if o.stray && !o.asked {
			o.stray, o.asked = false, true
			return Inquiry{Facet: o.facet}, true
		}
		key, ok := o.backlog.take()
		if !ok {
			return nil, false
		}
		obj, exists := o.source.Project(key)
		peer := o.known[key]
		if peer == obj.State && !o.unsure[key] {
			delete(o.doomed, key)
			o.backlog.done(key)
			continue
		}
		if !exists && !o.doomed[key] {
			// It vanished with a whole list, while it waited for something else: that is no deletion yet.
			o.stray = true
			o.backlog.done(key)
			continue
		}
		o.seq++
		o.flight[key] = sent{o.seq, time.Now(), obj.State}
		if exists {
			delete(o.doomed, key)
			return Put{Facet: o.facet, Key: key, Seq: o.seq, Object: obj}, true
		}
		if o.unsure[key] {
			peer.UID = "" // a Put that was not acknowledged may have happened
		}
		return Delete{Facet: o.facet, Key: key, Seq: o.seq, UID: peer.UID}, true
	}
	return nil, false
}

// settle takes in an answer and reports whether it was one that was waited for.
func (o *outbox) settle(a Ack) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	sent, ok := o.flight[a.Key]
	if !ok || sent.seq != a.Seq {
		return false
	}
	delete(o.flight, a.Key)
	o.backlog.signal() // the window has room
	if a.Code != Done && a.Code != Refused {
		o.unsure[a.Key] = true
		if o.backlog.retry(a.Key)%complainEvery == 0 {
			o.session.settled(o.facet, a.Key, a.Result)
		}
		o.session.peer.options.Observer.Acknowledged(o.facet, a.Code, 0)
		return true
	}
	// A refused version is taken as held, so that it is not sent again before it changes; the next comparison finds
	// that it is not, and so tries it once more.
	o.learn(a.Key, sent.state)
	if sent.state == (State{}) {
		delete(o.doomed, a.Key)
	}
	lag := o.backlog.done(a.Key)
	o.session.peer.options.Observer.Acknowledged(o.facet, a.Code, lag)
	return true
}

// learn notes what the peer holds under a key. o.mu is held.
func (o *outbox) learn(k Key, s State) {
	delete(o.unsure, k)
	if s == (State{}) {
		delete(o.known, k)
	} else {
		o.known[k] = s
	}
}

// notice takes in that the peer now holds s under a key. If a message about the key is under way, its answer will be
// newer than this. A notice by itself deletes nothing and makes nothing be remembered that the source does not have: a
// comparison judges that, with all that is like it.
func (o *outbox) notice(k Key, s State) {
	obj, exists := o.source.Project(k)
	o.mu.Lock()
	defer o.mu.Unlock()
	_, flying := o.flight[k]
	_, held := o.held[k]
	switch {
	case flying:
	case exists && obj.State != s: // even if the answer to an older question, still to come, says otherwise
		o.differ(k)
	case exists, o.doomed[k]:
		o.learn(k, s)
		o.backlog.add(k)
	case s == State{}:
		o.learn(k, s)
	case !held:
		o.stray = true
		o.backlog.signal()
	}
}

// begin starts a round of comparison and returns the question to ask, if the summary leaves any.
func (o *outbox) begin(s Summary) (Inquiry, bool) {
	mine := make(map[Bucket]map[Key]State)
	digests := make(map[Bucket]Digest)
	for k, state := range o.source.All() {
		b := BucketOf(k)
		if mine[b] == nil {
			mine[b] = make(map[Key]State)
		}
		mine[b][k] = state
		digests[b] += digestOf(k, state)
	}
	ask := differing(digests, s.Buckets)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = false
	o.round = &round{number: s.Round, count: s.Count, awaited: make(map[Bucket]map[Key]State), deletion: make(map[Key]State)}
	for _, b := range ask {
		o.round.awaited[b] = mine[b]
		delete(mine, b)
	}
	// What lies in the other buckets is held just as it is here.
	for _, states := range mine {
		for k, state := range states {
			o.equal(k, state)
		}
	}
	if len(ask) == 0 {
		o.finish()
		return Inquiry{}, false
	}
	return Inquiry{Facet: o.facet, Round: s.Round, Buckets: ask}, true
}

// compare takes in the answer for one bucket. It is compared with what the source had when the round began: a key that
// changed since is in the backlog for that reason.
func (o *outbox) compare(h Holdings) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.round == nil || o.round.number != h.Round {
		return // an answer to a round that a newer one has replaced
	}
	mine, awaited := o.round.awaited[h.Bucket]
	if !awaited {
		return
	}
	delete(o.round.awaited, h.Bucket)
	reported := make(map[Key]bool, len(h.Entries))
	for _, e := range h.Entries {
		reported[e.Key] = true
		want, ok := mine[e.Key]
		switch {
		case BucketOf(e.Key) != h.Bucket: // and not where it was asked for
		case !ok && len(o.round.deletion) >= strangers: // for the next round
		case !ok && o.doomed[e.Key]: // somebody saw to that already
			o.agree(e.Key, e.State)
			o.backlog.add(e.Key)
		case !ok:
			o.round.deletion[e.Key] = e.State
		case want != e.State:
			o.differ(e.Key)
		default:
			o.equal(e.Key, e.State)
		}
	}
	for k := range mine {
		if !reported[k] {
			o.differ(k)
		}
	}
	if len(o.round.awaited) == 0 {
		o.finish()
	}
}

// complainEvery is after how many failures in a row the source is told, so that a person can be: the first six take some
// five seconds, all others three minutes.
const complainEvery = 6

// strangers is how many objects that the source does not have are taken notice of in a round. More are for the next one;
// what a peer can make this side remember is bounded.
const strangers = 100_000

// differ has a key sent that the peer does not hold as it should. o.mu is held.
func (o *outbox) differ(k Key) {
	o.unsure[k] = true
	o.backlog.add(k)
}

// agree notes that the peer holds what it says. What was learnt or doubted in this conversation is newer than any
// comparison can be, so it stands. o.mu is held.
func (o *outbox) agree(k Key, s State) {
	_, known := o.known[k]
	_, flying := o.flight[k]
	if !known && !flying && !o.unsure[k] {
		o.known[k] = s
	}
}

// equal notes that the peer holds an object as it should. If the source still shows that the object was refused, it did not
// learn that it was taken since. o.mu is held.
func (o *outbox) equal(k Key, s State) {
	o.agree(k, s)
	_, flying := o.flight[k]
	if !flying && !o.unsure[k] && o.known[k] == s && o.source.Troubled(k) {
		o.session.settled(o.facet, k, Result{Code: Done})
	}
}

// finish ends a round: deletions that were decided go, and others pass the brake, or wait before it. o.mu is held.
func (o *outbox) finish() {
	r := o.round
	o.round, o.compared = nil, true
	o.backlog.signal()
	for k, s := range o.flight {
		if time.Since(s.at) > lostAfter {
			delete(o.flight, k)
			o.unsure[k] = true
			o.backlog.retry(k)
		}
	}
	decided := o.source.withdrawn(r.deletion)
	o.doom(decided)
	brake := judge(o.facet, r.deletion, r.count-len(decided))
	if brake == nil || o.source.Unbraked || o.released[brake.Word] {
		o.letGo(r.deletion)
		return
	}
	o.brake, o.held = brake, r.deletion
	o.session.peer.judged(o.facet, brake)
}

// letGo has keys deleted, and no others wait for a person's word any more. o.mu is held.
func (o *outbox) letGo(deletion map[Key]State) {
	o.doom(deletion)
	o.brake, o.held = nil, nil
	o.session.peer.judged(o.facet, nil)
}

// doom has keys deleted. o.mu is held.
func (o *outbox) doom(deletion map[Key]State) {
	for k, s := range deletion {
		if _, flying := o.flight[k]; flying {
			o.unsure[k] = true
		} else {
			o.learn(k, s)
		}
		o.doomed[k] = true
		o.backlog.add(k)
	}
}

// release lets the deletions go that wait for this word, and reports whether there were any.
func (o *outbox) release(word string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.brake == nil || o.brake.Word != word {
		return false
	}
	o.released[word] = true
	o.letGo(o.held)
	return true
}

// size returns the number of keys that may differ from what the peer holds.
func (o *outbox) size() int { return o.backlog.size() }
