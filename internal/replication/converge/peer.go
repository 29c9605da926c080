package converge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
)

// Options say what a Peer keeps equal.
type Options struct {
	// Sources and Replicas are the facets of which this side has the truth, and those of which it has the replica.
	Sources  map[Facet]SourceConfig
	Replicas map[Facet]ReplicaConfig
	Observer Observer
	// Guard returns the limits of the deletion guard, which may change. Nil is DefaultGuard.
	Guard func() Guard
	// Workers do the peer's work. Their Run must run.
	Workers *Workers
	// ResyncEvery is the time between resyncs of a facet, of which up to half is taken off at random. Zero means five
	// minutes.
	ResyncEvery time.Duration
	// Budget holds the peer to what it may make this side do. Nil is a new one without limits of its own.
	Budget *Budget
}

// Peer is the other side, as seen from this one: everything that is shared with it. It lives across connections, until it
// is closed. RunSession runs one session with it, over one connection.
type Peer struct {
	options  Options
	replicas map[Facet]*replicaState
	work     map[Facet]*taskQueue
	budget   *Budget

	running int // tasks. Guarded by Workers.mu

	mu       sync.Mutex
	session  *session                         // the one that is running, if any. Guarded by mu, as are all fields below
	requests sparse[objectKey, request]       // the Puts and Deletes of that session that are not begun
	bytes    int                              // of the payloads in requests
	results  sparse[objectKey, pendingResult] // results of that session that were not reported to their sources yet
	seen     sparse[Facet, uint64]            // revisions of the sources that the peer has told of, in any session

	// reporting is held while the observer is told of paused deletions, so that it is told in order, and nothing after Close.
	reporting sync.Mutex
	paused    sparse[Facet, string] // the tokens of those that the observer was told of. Guarded by reporting
	closed    bool                  // Guarded by reporting
}

// objectKey is a key of a facet.
type objectKey struct {
	facet Facet
	key   Key
}

// task names work to be done for one object; there is at most one of each at a time.
type task struct {
	objectKey

	// What it is, if it is not to apply a request or restore drift:
	reports  bool // report a result to the source
	confirms bool // ask the source's store about deletions, of any key
}

// request is a Put or Delete that a session received.
type request struct {
	session *session
	message Message
	memory  int64 // that the payload takes while it is decoded; 0 before that was counted, which is not done again while it waits
}

// bytes returns the size of the payload.
func (r request) bytes() int {
	put, _ := r.message.(Put)
	return len(put.Payload)
}

// pendingResult is a result that a session received.
type pendingResult struct {
	session *session
	result  Result
}

// errSessionRunning means that RunSession was called during a session.
var errSessionRunning = errors.New("a session with this peer is running")

// NewPeer returns a peer that nothing is known of yet.
func NewPeer(o Options) *Peer {
	if o.Guard == nil {
		o.Guard = DefaultGuard
	}
	if o.ResyncEvery <= 0 {
		o.ResyncEvery = 5 * time.Minute
	}
	if o.Budget == nil {
		o.Budget = NewBudget(Limits{})
	}
	p := &Peer{
		options:  o,
		budget:   o.Budget,
		replicas: make(map[Facet]*replicaState, len(o.Replicas)),
		work:     make(map[Facet]*taskQueue, len(o.Sources)+len(o.Replicas)),
	}
	for f := range o.Sources {
		p.work[f] = p.newQueue()
	}
	for f, config := range o.Replicas {
		p.work[f] = p.newQueue()
		p.replicas[f] = newReplicaState(config, o.Budget.limits.Objects)
	}
	return p
}

func (p *Peer) newQueue() *taskQueue {
	q := &taskQueue{peer: p}
	q.backlog = newBacklog[task](func() { p.options.Workers.add(q) })
	return q
}

// guard returns the limits of the deletion guard.
func (p *Peer) guard() Guard { return p.options.Guard() }

// Close forgets all work that is not begun; what was begun goes on. The peer is of no use afterwards.
func (p *Peer) Close() {
	for _, q := range p.work {
		q.backlog.close()
	}
	p.reporting.Lock()
	defer p.reporting.Unlock()
	p.closed = true
	for f := range p.paused {
		p.options.Observer.DeletionsResumed(f)
	}
	p.paused = nil
}

// Changed says that the object under a key may have changed in the cache of this side: a source object that the peer
// should hold, or a replica object that may no longer be what was applied. It never blocks on anything but memory.
func (p *Peer) Changed(f Facet, k Key) {
	if replica, ok := p.replicas[f]; ok {
		if replica.needsCheck(k) {
			p.work[f].backlog.add(task{objectKey: objectKey{f, k}})
		}
		return
	}
	if s := p.current(); s != nil {
		if o := s.outboxes[f]; o != nil {
			o.sourceChanged(k)
		}
	}
}

// Resync has a facet compared now. It is for a cache that was replaced as a whole, so that what is missing from it is
// judged together and not deleted one by one.
func (p *Peer) Resync(f Facet) {
	s := p.current()
	if s == nil {
		return
	}
	if _, ok := p.replicas[f]; ok {
		s.sendDigest(f)
		return
	}
	s.enqueueControl(BucketRequest{Facet: f})
}

// ConfirmDeletions lets the paused deletions with this token go, and reports whether there were any.
func (p *Peer) ConfirmDeletions(f Facet, token string) bool {
	s := p.current()
	return s != nil && s.outboxes[f] != nil && s.outboxes[f].confirmDeletions(token)
}

// Backlog returns how many keys of a source's facet may differ from what the peer holds; zero while nobody is connected,
// since that is found out when somebody connects.
func (p *Peer) Backlog(f Facet) int {
	s := p.current()
	if s == nil || s.outboxes[f] == nil {
		return 0
	}
	return s.outboxes[f].size()
}

// Waiting returns how many keys of all facets Backlog counts, and for how long the oldest of them has been waiting: by how much the
// peer lags behind.
func (p *Peer) Waiting() (keys int, lag time.Duration) {
	s := p.current()
	if s == nil {
		return 0, 0
	}
	for _, o := range s.outboxes {
		keys += o.size()
		lag = max(lag, o.backlog.oldest())
	}
	return keys, lag
}

// process does one task.
func (p *Peer) process(ctx context.Context, t task) {
	switch {
	case t.reports:
		p.reportResult(ctx, t)
		return
	case t.confirms:
		p.confirmDeletes(ctx, t)
		return
	}
	if r, ok := p.takeRequest(t.objectKey); ok {
		p.applyRequest(ctx, t, r)
		return
	}
	p.restoreReplica(ctx, t)
}

// applyRequest does what a Put or Delete says.
func (p *Peer) applyRequest(ctx context.Context, t task, r request) {
	replica := p.replicas[t.facet]
	ack, gone := Ack{Facet: t.facet, Key: t.key}, false
	switch m := r.message.(type) {
	case Put:
		if r.memory == 0 {
			r.memory = jsonsize.Memory(m.Payload)
		}
		result, parked := p.applyPut(ctx, t, m.Object, r.memory)
		if parked {
			p.putBack(t.objectKey, r)
			p.work[t.facet].backlog.park(t)
			return
		}
		ack.Seq, ack.Result = m.Seq, result
		gone = ack.Absent
	case Delete:
		ack.Seq, ack.Result = m.Seq, replica.remove(ctx, t.key, m.UID)
		gone = ack.Code == Done
		if ack.Code == Refused {
			p.options.Observer.Removed(t.facet, t.key, ack.Result)
		}
	}
	p.options.Observer.Applied(r.message, ack, p.work[t.facet].backlog.lag(t))
	if replica.Retain && gone {
		p.options.Observer.Removed(t.facet, t.key, ack.Result)
	}
	if p.current() == r.session {
		replica.markAdvertised(t.key, ack.Result)
		r.session.enqueueControl(ack)
	}
	if ack.Code == Done {
		// What a Delete spared is reported to the source, and so is everything if a new session began meanwhile.
		p.Changed(t.facet, t.key)
	}
	p.work[t.facet].backlog.done(t)
	signal(r.session.room)
}

// applyPut makes a replica hold an object, which takes so much memory to decode. If there is not so much now, it does nothing and reports
// that the task is to be parked: it is added again when there may be.
func (p *Peer) applyPut(ctx context.Context, t task, obj Object, memory int64) (r Result, parked bool) {
	replica := p.replicas[t.facet]
	if !replica.hasRoom(t.key) {
		return Result{Code: Refused, Reason: p.budget.errFull(t.facet).Error()}, false
	}
	release, err := p.budget.take(ctx, p.options.Workers.memory, memory, func() { p.work[t.facet].backlog.add(t) })
	switch {
	case err != nil:
		return resultOf(err), false
	case release == nil:
		return Result{}, true
	}
	defer release()
	return replica.apply(ctx, t.key, obj), false
}

// reportResult reports a result to its source.
func (p *Peer) reportResult(ctx context.Context, t task) {
	p.mu.Lock()
	r, waiting := p.results[t.objectKey]
	p.results.remove(t.objectKey)
	p.mu.Unlock()
	if waiting {
		err := p.options.Sources[t.facet].ReportResult(ctx, t.key, r.result)
		if err != nil && !errors.Is(err, ErrRefused) && p.enqueueResult(t.objectKey, r, false) {
			p.work[t.facet].backlog.retry(t)
			return
		}
	}
	p.work[t.facet].backlog.done(t)
}

// restoreReplica checks a replica object for drift and restores it, or asks the source to.
func (p *Peer) restoreReplica(ctx context.Context, t task) {
	replica, backlog := p.replicas[t.facet], p.work[t.facet].backlog
	check := replica.checkDrift(t.key)
	switch check.action {
	case waitFirst:
		backlog.later(t, check.wait)
		return
	case restore:
		r, parked := p.applyPut(ctx, t, check.object, jsonsize.Memory(check.object.Payload))
		if parked {
			backlog.park(t)
			return
		}
		if r.Code != Done || !r.Absent {
			p.options.Observer.Repaired(t.facet, t.key, r)
		}
		if r.Code != Done {
			backlog.retry(t)
			return
		}
		check = replica.afterRestore(t.key)
	case noAction, advertise:
	}
	if s := p.current(); s != nil && check.action == advertise {
		s.enqueueControl(ReplicaChanged{Facet: t.facet, Key: t.key, State: check.object.State})
	}
	backlog.done(t)
}

// enqueueRequest has a Put or Delete applied. A newer one about the same object replaces an older one that was not begun.
func (p *Peer) enqueueRequest(o objectKey, r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == r.session {
		p.bytes += r.bytes() - p.requests[o].bytes()
		p.requests.set(o, r)
		p.work[o.facet].backlog.add(task{objectKey: o})
	}
}

// takeRequest takes out the request about an object, if there is one.
func (p *Peer) takeRequest(o objectKey) (request, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.requests[o]
	p.requests.remove(o)
	p.bytes -= r.bytes()
	return r, ok
}

// putBack undoes takeRequest, unless a newer request came since or the session is over.
func (p *Peer) putBack(o objectKey, r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, newer := p.requests[o]; !newer && p.session == r.session {
		p.bytes += r.bytes()
		p.requests.set(o, r)
	}
}

// pendingRequests returns how many requests are not begun, and the bytes of their payloads.
func (p *Peer) pendingRequests() (requests, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests), p.bytes
}

// enqueueResult notes a result that is to be reported to its source, unless the session is over or, without replace, a
// newer one is noted. It reports whether there is something to report then.
func (p *Peer) enqueueResult(o objectKey, r pendingResult, replace bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != r.session {
		return false
	}
	if _, newer := p.results[o]; !newer || replace {
		p.results.set(o, r)
	}
	return true
}

// notePaused notes which deletions of a facet are paused, nil if none are, and tells the observer what is new. A session may
// still run after Close.
func (p *Peer) notePaused(f Facet, paused *PausedDeletions) {
	p.reporting.Lock()
	defer p.reporting.Unlock()
	before, wasPaused := p.paused[f]
	switch {
	case p.closed:
	case paused == nil && wasPaused:
		p.paused.remove(f)
		p.options.Observer.DeletionsResumed(f)
	case paused != nil && paused.Token != before:
		p.paused.set(f, paused.Token)
		p.options.Observer.DeletionsPaused(*paused)
	}
}

// noteCompared tells the observer that the first resync of a session is over.
func (p *Peer) noteCompared(f Facet) {
	p.reporting.Lock()
	defer p.reporting.Unlock()
	if !p.closed {
		p.options.Observer.Compared(f)
	}
}

func (p *Peer) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// beginSession makes s the running session.
func (p *Peer) beginSession(s *session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return errSessionRunning
	}
	p.session = s
	return nil
}

// endSession forgets what the session requested and was not begun. What was begun goes on; what changes by it is reported
// in the next session.
func (p *Peer) endSession() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = nil
	p.requests, p.bytes, p.results = nil, 0, nil
}
