package converge

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// backpressure is how many messages may wait to be done or sent before no more are received, and how many bytes of payload.
// An honest peer stays far below the first: it has at most a window of each facet unanswered.
const (
	backpressure      = 8 * window
	backpressureBytes = 32 << 20
)

// session is one conversation.
type session struct {
	peer     *Peer
	conn     Conn
	ctx      context.Context //nolint:containedctx // a session is a call of Converse, and ends with it
	outboxes map[Facet]*outbox
	order    []Facet // of outboxes, so that they take turns

	wake chan struct{} // there may be something to send
	room chan struct{} // there may be room again

	mu      sync.Mutex
	control []Message          // what to send before any Put or Delete; notices as pointers. Guarded by mu
	answers int                // how many of control are no notices. Guarded by mu
	notices map[object]*Notice // those in control that may still be brought up to date. Guarded by mu
	rounds  map[Facet]uint64   // guarded by mu

	turn     int              // only used by send
	accepted map[Facet]uint64 // the last Put or Delete that was accepted. Only used by receive
}

// Converse holds a conversation over conn until that fails or the context ends, and returns why. There is one at a time.
// Every source and replica must be complete when it begins. Run must be running.
func (p *Peer) Converse(ctx context.Context, conn Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &session{
		peer: p, conn: conn, ctx: ctx,
		outboxes: make(map[Facet]*outbox),
		wake:     make(chan struct{}, 1), room: make(chan struct{}, 1),
		notices: make(map[object]*Notice), rounds: make(map[Facet]uint64), accepted: make(map[Facet]uint64),
	}
	for f, source := range p.options.Sources {
		s.outboxes[f] = newOutbox(f, source, s)
		s.order = append(s.order, f)
	}
	slices.Sort(s.order)
	if err := p.enter(s); err != nil {
		return err
	}
	var loops sync.WaitGroup
	for _, loop := range []func() error{s.send, s.receive, s.compare} {
		loops.Go(func() { cancel(loop()) })
	}
	loops.Wait()
	p.leave()
	for _, o := range s.outboxes {
		o.backlog.close()
	}
	return context.Cause(ctx)
}

// send sends what there is to send, answers first, then the facets in turn.
func (s *session) send() error {
	for {
		m, ok := s.next()
		if !ok {
			select {
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			case <-s.wake:
			}
			continue
		}
		if err := s.conn.Send(s.ctx, m); err != nil {
			return err
		}
	}
}

// next returns the next message to send, false if there is none.
func (s *session) next() (Message, bool) {
	if m, ok := s.said(); ok {
		signal(s.room)
		return m, true
	}
	for range s.order {
		s.turn = (s.turn + 1) % len(s.order)
		if m, ok := s.outboxes[s.order[s.turn]].next(); ok {
			return m, true
		}
	}
	return nil, false
}

// said takes out what say has put in first.
func (s *session) said() (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.control) == 0 {
		return nil, false
	}
	m := s.control[0]
	s.control[0] = nil
	s.control = s.control[1:]
	n, ok := m.(*Notice)
	if !ok {
		s.answers--
		return m, true
	}
	if o := (object{n.Facet, n.Key}); s.notices[o] == n {
		delete(s.notices, o)
	}
	return *n, true
}

// say has an answer sent soon. It does not block. A notice that waits to be sent is brought up to date rather than followed
// by another, unless an Ack has come between: the source takes no notice of what it hears before that.
func (s *session) say(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := m.(type) {
	case Notice:
		o := object{n.Facet, n.Key}
		if waiting := s.notices[o]; waiting != nil {
			waiting.State = n.State
			return
		}
		s.notices[o] = &n
		m = &n
		s.answers--
	case Ack:
		delete(s.notices, object{n.Facet, n.Key})
	}
	s.answers++
	s.control = append(s.control, m)
	signal(s.wake)
}

// receive takes in what the peer sends.
func (s *session) receive() error {
	for {
		for s.crowded() {
			select {
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			case <-s.room:
			}
		}
		m, err := s.conn.Recv(s.ctx)
		if err != nil {
			return err
		}
		s.take(m)
	}
}

// crowded reports whether the peer should wait. Notices do not count: both sides may have many of them to send, and would
// wait for each other.
func (s *session) crowded() bool {
	waiting, bytes := s.peer.ordered()
	s.mu.Lock()
	defer s.mu.Unlock()
	return waiting+s.answers > backpressure || bytes > backpressureBytes
}

// take takes in one message. A message about a facet that this side does not have is refused or, if it needs no answer,
// ignored: the peer may be newer.
func (s *session) take(m Message) {
	switch m := m.(type) {
	case Put:
		s.accept(m.Facet, m.Key, m.Seq, m)
	case Delete:
		s.accept(m.Facet, m.Key, m.Seq, m)
	case Inquiry:
		s.report(m)
	case Ack:
		if o := s.outboxes[m.Facet]; o != nil && o.settle(m) && m.Code != Retry {
			s.settled(m.Facet, m.Key, m.Result)
		}
	case Notice:
		if o := s.outboxes[m.Facet]; o != nil {
			o.notice(m.Key, m.State)
		}
	case Summary:
		if o := s.outboxes[m.Facet]; o != nil {
			if q, ok := o.begin(m); ok {
				s.say(q)
			}
		}
	case Holdings:
		if o := s.outboxes[m.Facet]; o != nil {
			o.compare(m)
		}
	}
}

// accept has a Put or Delete done, once.
func (s *session) accept(f Facet, k Key, seq uint64, m Message) {
	if s.peer.keepers[f] == nil {
		reason := "the peer does not take " + string(f) + " from this side"
		s.say(Ack{Facet: f, Key: k, Seq: seq, Result: Result{Code: Refused, Reason: reason}})
		return
	}
	if seq <= s.accepted[f] {
		return
	}
	s.accepted[f] = seq
	s.peer.order(object{f, k}, order{session: s, message: m})
}

// settled has the source told how the peer fared with an object.
func (s *session) settled(f Facet, k Key, r Result) {
	o := object{f, k}
	if s.peer.pass(o, verdict{session: s, result: r}, true) {
		s.peer.work[f].add(task{object: o, settle: true})
	}
}

// report answers an inquiry.
func (s *session) report(q Inquiry) {
	keeper := s.peer.keepers[q.Facet]
	if keeper == nil {
		return
	}
	if len(q.Buckets) == 0 {
		s.summarise(q.Facet)
		return
	}
	buckets := slices.Compact(slices.Sorted(slices.Values(q.Buckets)))
	asked := func(b Bucket) bool {
		_, ok := slices.BinarySearch(buckets, b)
		return ok
	}
	entries := make(map[Bucket][]Entry)
	for k, state := range keeper.tell(asked) {
		entries[BucketOf(k)] = append(entries[BucketOf(k)], Entry{Key: k, State: state})
	}
	for _, b := range buckets {
		s.say(Holdings{Facet: q.Facet, Round: q.Round, Bucket: b, Entries: entries[b]})
	}
}

// summarise begins a round of comparison of a replica's facet.
func (s *session) summarise(f Facet) {
	count, buckets := summarise(s.peer.keepers[f].tell(everything))
	s.mu.Lock()
	s.rounds[f]++
	round := s.rounds[f]
	s.mu.Unlock()
	s.say(Summary{Facet: f, Round: round, Count: count, Buckets: buckets})
}

// compare has every facet of which this side has the replica compared, at once and then again and again.
func (s *session) compare() error {
	for {
		for f := range s.peer.keepers {
			s.summarise(f)
		}
		every := s.peer.options.CompareEvery
		timer := time.NewTimer(every - rand.N(every/2)) //nolint:gosec // jitter needs no secrecy
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return context.Cause(s.ctx)
		case <-timer.C:
		}
	}
}

func everything(Bucket) bool { return true }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
