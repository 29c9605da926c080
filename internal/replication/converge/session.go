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
	facets   []Facet // of outboxes, so that they take turns

	wake chan struct{} // there may be something to send
	room chan struct{} // there may be room again

	mu      sync.Mutex
	control []Message                     // what to send before any Put or Delete; notices as pointers. Guarded by mu
	answers int                           // how many of control are no notices. Guarded by mu
	changes map[objectKey]*ReplicaChanged // those in control that may still be brought up to date. Guarded by mu
	resyncs map[Facet]uint64              // guarded by mu

	nextFacet int              // only used by send
	lastSeq   map[Facet]uint64 // the last Put or Delete that was accepted. Only used by receive
}

// Converse holds a conversation over conn until that fails or the context ends, and returns why. There is one at a time.
// Every source and replica must be complete when it begins. Run must be running.
func (p *Peer) RunSession(ctx context.Context, conn Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &session{
		peer: p, conn: conn, ctx: ctx,
		outboxes: make(map[Facet]*outbox),
		wake:     make(chan struct{}, 1), room: make(chan struct{}, 1),
		changes: make(map[objectKey]*ReplicaChanged), resyncs: make(map[Facet]uint64), lastSeq: make(map[Facet]uint64),
	}
	for f, source := range p.options.Sources {
		s.outboxes[f] = newOutbox(f, source, s)
		s.facets = append(s.facets, f)
	}
	slices.Sort(s.facets)
	if err := p.beginSession(s); err != nil {
		return err
	}
	var loops sync.WaitGroup
	for _, loop := range []func() error{s.send, s.receive, s.resyncPeriodically} {
		loops.Go(func() { cancel(loop()) })
	}
	loops.Wait()
	p.endSession()
	for _, o := range s.outboxes {
		o.backlog.close()
	}
	return context.Cause(ctx)
}

// send sends what there is to send, answers first, then the facets in turn.
func (s *session) send() error {
	for {
		m, ok := s.nextMessage()
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
func (s *session) nextMessage() (Message, bool) {
	if m, ok := s.nextControl(); ok {
		signal(s.room)
		return m, true
	}
	for range s.facets {
		s.nextFacet = (s.nextFacet + 1) % len(s.facets)
		if m, ok := s.outboxes[s.facets[s.nextFacet]].nextMessage(); ok {
			return m, true
		}
	}
	return nil, false
}

// said takes out what say has put in first.
func (s *session) nextControl() (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.control) == 0 {
		return nil, false
	}
	m := s.control[0]
	s.control[0] = nil
	s.control = s.control[1:]
	n, ok := m.(*ReplicaChanged)
	if !ok {
		s.answers--
		return m, true
	}
	if o := (objectKey{n.Facet, n.Key}); s.changes[o] == n {
		delete(s.changes, o)
	}
	return *n, true
}

// say has an answer sent soon. It does not block. A notice that waits to be sent is brought up to date rather than followed
// by another, unless an Ack has come between: the source takes no notice of what it hears before that.
func (s *session) enqueueControl(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := m.(type) {
	case ReplicaChanged:
		o := objectKey{n.Facet, n.Key}
		if waiting := s.changes[o]; waiting != nil {
			waiting.State = n.State
			return
		}
		s.changes[o] = &n
		m = &n
		s.answers--
	case Ack:
		delete(s.changes, objectKey{n.Facet, n.Key})
	}
	s.answers++
	s.control = append(s.control, m)
	signal(s.wake)
}

// receive takes in what the peer sends.
func (s *session) receive() error {
	for {
		for s.isOverloaded() {
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
		s.handleMessage(m)
	}
}

// crowded reports whether the peer should wait. Notices do not count: both sides may have many of them to send, and would
// wait for each other.
func (s *session) isOverloaded() bool {
	waiting, bytes := s.peer.pendingRequests()
	s.mu.Lock()
	defer s.mu.Unlock()
	return waiting+s.answers > backpressure || bytes > backpressureBytes
}

// take takes in one message. A message about a facet that this side does not have is refused or, if it needs no answer,
// ignored: the peer may be newer.
func (s *session) handleMessage(m Message) {
	switch m := m.(type) {
	case Put:
		s.acceptRequest(m.Facet, m.Key, m.Seq, m)
	case Delete:
		s.acceptRequest(m.Facet, m.Key, m.Seq, m)
	case BucketRequest:
		s.handleBucketRequest(m)
	case Ack:
		if o := s.outboxes[m.Facet]; o != nil && o.handleAck(m) && m.Code != Retry {
			s.queueResult(m.Facet, m.Key, m.Result)
		}
	case ReplicaChanged:
		if o := s.outboxes[m.Facet]; o != nil {
			o.handleReplicaChanged(m.Key, m.State)
		}
	case Digest:
		if o := s.outboxes[m.Facet]; o != nil {
			if q, ok := o.beginResync(m); ok {
				s.enqueueControl(q)
			}
		}
	case BucketEntries:
		if o := s.outboxes[m.Facet]; o != nil {
			o.handleBucketEntries(m)
		}
	}
}

// accept has a Put or Delete done, once.
func (s *session) acceptRequest(f Facet, k Key, seq uint64, m Message) {
	if s.peer.replicas[f] == nil {
		reason := "the peer does not take " + string(f) + " from this side"
		s.enqueueControl(Ack{Facet: f, Key: k, Seq: seq, Result: Result{Code: Refused, Reason: reason}})
		return
	}
	if seq <= s.lastSeq[f] {
		return
	}
	s.lastSeq[f] = seq
	s.peer.enqueueRequest(objectKey{f, k}, request{session: s, message: m})
}

// settled has the source told how the peer fared with an object.
func (s *session) queueResult(f Facet, k Key, r Result) {
	o := objectKey{f, k}
	if s.peer.enqueueResult(o, pendingResult{session: s, result: r}, true) {
		s.peer.work[f].add(task{objectKey: o, reports: true})
	}
}

// report answers an inquiry.
func (s *session) handleBucketRequest(q BucketRequest) {
	keeper := s.peer.replicas[q.Facet]
	if keeper == nil {
		return
	}
	if len(q.Buckets) == 0 {
		s.sendDigest(q.Facet)
		return
	}
	buckets := slices.Compact(slices.Sorted(slices.Values(q.Buckets)))
	asked := func(b Bucket) bool {
		_, ok := slices.BinarySearch(buckets, b)
		return ok
	}
	entries := make(map[Bucket][]Entry)
	for k, state := range keeper.advertiseAll(asked) {
		entries[BucketOf(k)] = append(entries[BucketOf(k)], Entry{Key: k, State: state})
	}
	for _, b := range buckets {
		s.enqueueControl(BucketEntries{Facet: q.Facet, Resync: q.Resync, Bucket: b, Entries: entries[b]})
	}
}

// summarise begins a round of comparison of a replica's facet.
func (s *session) sendDigest(f Facet) {
	count, buckets := digestBuckets(s.peer.replicas[f].advertiseAll(allBuckets))
	s.mu.Lock()
	s.resyncs[f]++
	round := s.resyncs[f]
	s.mu.Unlock()
	s.enqueueControl(Digest{Facet: f, Resync: round, Count: count, Buckets: buckets})
}

// compare has every facet of which this side has the replica compared, at once and then again and again.
func (s *session) resyncPeriodically() error {
	for {
		for f := range s.peer.replicas {
			s.sendDigest(f)
		}
		every := s.peer.options.ResyncEvery
		timer := time.NewTimer(every - rand.N(every/2)) //nolint:gosec // jitter needs no secrecy
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return context.Cause(s.ctx)
		case <-timer.C:
		}
	}
}

func allBuckets(Bucket) bool { return true }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
