package converge

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// backpressure is how many messages may wait to be applied or sent before no more are received, and how many bytes of
// payload. An honest peer stays far below the first: it has at most a window of each facet unanswered.
const (
	backpressure      = 8 * window
	backpressureBytes = 32 << 20
)

// session is what two peers say over one connection. Two goroutines carry it: that of RunSession owns the session and is
// the only one that sends, and one of the connection receives. Whatever happens elsewhere, such as a change in a cache or
// the end of an apply, is noted in the outboxes and in control, and wakes the sender.
type session struct {
	peer      *Peer
	conn      Conn
	ctx       context.Context //nolint:containedctx // a session is a call of RunSession, and ends with it
	cancel    context.CancelCauseFunc
	keepConn  func() bool // keeps the end of ctx from closing conn
	heartbeat time.Duration
	outboxes  map[Facet]*outbox
	facets    []Facet // of outboxes, so that they take turns

	wake   chan struct{} // there may be something to send
	room   chan struct{} // there may be room again
	broken chan struct{} // closed when nothing can be sent any more

	mu      sync.Mutex
	control []Message                          // what to send before any Put or Delete; ReplicaChanged as pointers. Guarded by mu
	answers int                                // how many of control are no ReplicaChanged. Guarded by mu
	changes sparse[objectKey, *ReplicaChanged] // those in control that may still be brought up to date. Guarded by mu
	resyncs sparse[Facet, uint64]              // guarded by mu

	receiving sync.Mutex // is held while a message is handled
	over      bool       // the session is. Guarded by receiving

	nextFacet int                   // only used by the sender
	lastSeq   sparse[Facet, uint64] // of the last Put or Delete that was accepted. Only used by the receiver
}

// RunSession runs a session over conn until that fails or the context ends, and returns why. There is one session at a
// time. Every source and replica must be complete when it begins. When nothing else was sent for the
// length of heartbeat, a Heartbeat is; zero means never.
func (p *Peer) RunSession(ctx context.Context, conn Conn, heartbeat time.Duration) error {
	s, err := p.newSession(ctx, conn, heartbeat)
	if err != nil {
		return err
	}
	// The first resync begins before anything is received: it finds out what is held, which counts towards the peer's limit.
	resync := time.NewTimer(0)
	defer resync.Stop()
	s.sendDigests(resync)
	conn.Deliver(s.receive, s.cancel)
	if err := s.send(resync); !errors.Is(err, io.EOF) {
		s.cancel(err)
	}
	return s.end()
}

// newSession begins a session, whose owner calls end.
func (p *Peer) newSession(ctx context.Context, conn Conn, heartbeat time.Duration) (*session, error) {
	s := &session{
		peer: p, conn: conn, heartbeat: heartbeat,
		outboxes: make(map[Facet]*outbox, len(p.options.Sources)),
		wake:     make(chan struct{}, 1), room: make(chan struct{}, 1), broken: make(chan struct{}),
	}
	for f, source := range p.options.Sources {
		s.outboxes[f] = newOutbox(f, source, s)
		s.facets = append(s.facets, f)
	}
	slices.Sort(s.facets)
	ctx, cancel := context.WithCancelCause(ctx)
	s.ctx, s.cancel = ctx, cancel
	if err := p.beginSession(s); err != nil {
		cancel(err)
		return nil, err
	}
	s.keepConn = context.AfterFunc(ctx, func() { conn.Close(context.Cause(ctx)) }) // also a Send that blocks ends then
	return s, nil
}

// end waits until the session is over, and returns why it is.
func (s *session) end() error {
	close(s.broken)
	<-s.ctx.Done()
	s.keepConn()
	s.stopReceiving()
	s.peer.endSession()
	for _, o := range s.outboxes {
		o.backlog.close()
	}
	return context.Cause(s.ctx)
}

// send sends what there is to send. It begins resyncs when they are due, and sends heartbeats.
func (s *session) send(resync *time.Timer) error {
	idle := time.NewTimer(s.heartbeat)
	defer idle.Stop()
	if s.heartbeat <= 0 {
		idle.Stop()
	}
	for s.ctx.Err() == nil {
		m, ok := s.nextMessage(resync)
		if !ok {
			select {
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			case <-s.wake:
				continue
			case <-resync.C:
				s.sendDigests(resync)
				continue
			case <-idle.C:
				m = Heartbeat{}
			}
		}
		if err := s.sendMessage(m); err != nil {
			return err
		}
		if s.heartbeat > 0 {
			idle.Reset(s.heartbeat)
		}
	}
	return context.Cause(s.ctx)
}

// sendMessage sends a message, and tells the observer of Puts and Deletes.
func (s *session) sendMessage(m Message) error {
	change, ok := changeOf(m)
	if !ok {
		return s.conn.Send(m)
	}
	lag := s.outboxes[change.facet].backlog.lag(change.key) // the Ack may come before Send returns
	if err := s.conn.Send(m); err != nil {
		return err
	}
	s.peer.options.Observer.Sent(m, lag)
	return nil
}

// changeOf returns which object a message changes, false if it is no Put or Delete.
func changeOf(m Message) (objectKey, bool) {
	switch m := m.(type) {
	case Put:
		return objectKey{m.Facet, m.Key}, true
	case Delete:
		return objectKey{m.Facet, m.Key}, true
	default:
		return objectKey{}, false
	}
}

// nextMessage returns the next message to send, false if there is none now. Answers come first, then the facets in turn.
// However much there is to send, a resync that is due begins.
func (s *session) nextMessage(resync *time.Timer) (Message, bool) {
	select {
	case <-resync.C:
		s.sendDigests(resync)
	default:
	}
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

// nextControl takes out the oldest message of control.
func (s *session) nextControl() (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.control) == 0 {
		return nil, false
	}
	m := s.control[0]
	s.control[0] = nil
	s.control = s.control[1:]
	if len(s.control) == 0 {
		s.control = nil // it may have been long
	}
	n, ok := m.(*ReplicaChanged)
	if !ok {
		s.answers--
		return m, true
	}
	if o := (objectKey{n.Facet, n.Key}); s.changes[o] == n {
		s.changes.remove(o)
	}
	return *n, true
}

// enqueueControl has a message sent soon. It does not block. A ReplicaChanged that waits to be sent is brought up to date
// rather than followed by another, unless an Ack comes between: the source ignores a ReplicaChanged before the Ack.
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
		s.changes.set(o, &n)
		m = &n
		s.answers--
	case Ack:
		s.changes.remove(objectKey{n.Facet, n.Key})
	}
	s.answers++
	s.control = append(s.control, m)
	s.wakeUp()
}

// receive handles a message, and waits until there is room for the next. After stopReceiving it does nothing: what a session
// that is over still received must not pass for known in the next one.
func (s *session) receive(m Message) {
	s.peer.budget.await(s.ctx, m)
	s.receiving.Lock()
	if !s.over {
		s.handleMessage(m)
	}
	s.receiving.Unlock()
	s.waitForRoom()
}

func (s *session) stopReceiving() {
	s.receiving.Lock()
	defer s.receiving.Unlock()
	s.over = true
}

// waitForRoom waits while this side is overloaded, so that the peer is sent no more than it can handle. It does not wait
// once the connection is over, which only the receiver tells.
func (s *session) waitForRoom() {
	for s.isOverloaded() {
		select {
		case <-s.ctx.Done():
			return
		case <-s.broken:
			return
		case <-s.room:
		}
	}
}

// isOverloaded reports whether the peer should wait. A ReplicaChanged does not count: both sides may have many of them to
// send, and would wait for each other.
func (s *session) isOverloaded() bool {
	waiting, bytes := s.peer.pendingRequests()
	s.mu.Lock()
	defer s.mu.Unlock()
	return waiting+s.answers > backpressure || bytes > backpressureBytes
}

// handleMessage handles one message. A message about a facet that this side does not have is refused or, if it needs no
// Ack, ignored: the peer may be newer.
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

// acceptRequest has a Put or Delete applied, once.
func (s *session) acceptRequest(f Facet, k Key, seq uint64, m Message) {
	if s.peer.replicas[f] == nil {
		reason := "the peer does not take " + string(f) + " from this side"
		s.enqueueControl(Ack{Facet: f, Key: k, Seq: seq, Result: Result{Code: Refused, Reason: reason}})
		return
	}
	if seq <= s.lastSeq[f] {
		return
	}
	s.lastSeq.set(f, seq)
	s.peer.noteSeen(f, m)
	if put, ok := m.(Put); ok {
		if err := s.peer.budget.check(put.Payload); err != nil {
			s.enqueueControl(Ack{Facet: f, Key: k, Seq: seq, Result: Result{Code: Refused, Reason: err.Error()}})
			return
		}
	}
	s.peer.enqueueRequest(objectKey{f, k}, request{session: s, message: m})
}

// queueResult has a result reported to the source.
func (s *session) queueResult(f Facet, k Key, r Result) {
	o := objectKey{f, k}
	if s.peer.enqueueResult(o, pendingResult{session: s, result: r}, true) {
		s.peer.work[f].backlog.add(task{objectKey: o, reports: true})
	}
}

// handleBucketRequest answers a BucketRequest.
func (s *session) handleBucketRequest(q BucketRequest) {
	replica := s.peer.replicas[q.Facet]
	if replica == nil {
		return
	}
	if len(q.Buckets) == 0 {
		s.sendDigest(q.Facet)
		return
	}
	buckets := slices.Compact(slices.Sorted(slices.Values(q.Buckets)))
	requested := func(b Bucket) bool {
		_, ok := slices.BinarySearch(buckets, b)
		return ok
	}
	entries := make(map[Bucket][]Entry)
	for k, state := range replica.advertiseAll(requested) {
		entries[BucketOf(k)] = append(entries[BucketOf(k)], Entry{Key: k, State: state})
	}
	for _, b := range buckets {
		s.enqueueControl(BucketEntries{Facet: q.Facet, Resync: q.Resync, Bucket: b, Entries: entries[b]})
	}
}

// sendDigest begins a resync of a replica's facet.
func (s *session) sendDigest(f Facet) {
	count, buckets := digestBuckets(s.peer.replicas[f].advertiseAll(allBuckets))
	s.mu.Lock()
	resync := s.resyncs[f] + 1
	s.resyncs.set(f, resync)
	s.mu.Unlock()
	s.enqueueControl(Digest{Facet: f, Resync: resync, Count: count, Buckets: buckets})
}

// sendDigests begins a resync of every facet of which this side has the replica, and sets the timer for the next.
func (s *session) sendDigests(next *time.Timer) {
	for f := range s.peer.replicas {
		s.sendDigest(f)
	}
	every := s.peer.options.ResyncEvery
	next.Reset(every - rand.N(every/2)) //nolint:gosec // jitter needs no secrecy
}

func allBuckets(Bucket) bool { return true }

// wakeUp says that there may be something to send.
func (s *session) wakeUp() { signal(s.wake) }

// signal gives a value to a channel of capacity one, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
