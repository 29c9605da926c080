package converge

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// parallel is how many applies or settlements run at a time for one facet of one peer. Each is mostly the wait for an
	// API server.
	workersPerFacet = 32
	// patience is how long each may take. A connection that ends does not end it: a write that is broken off may have
	// happened all the same.
	applyTimeout = time.Minute
)

// Options say what a Peer keeps equal.
type Options struct {
	// Sources and Replicas are the facets of which this side has the truth, and those of which it has the copy.
	Sources  map[Facet]SourceConfig
	Replicas map[Facet]ReplicaConfig
	Observer Observer
	// CompareEvery is the time between comparisons of a facet, of which up to half is taken off at random. Zero means
	// five minutes.
	ResyncEvery time.Duration
}

// Peer is the other side, as seen from this one: everything that is shared with it. It lives across connections.
// It does its work while Run runs; Converse holds one conversation with it, over one connection.
type Peer struct {
	options  Options
	replicas map[Facet]*replicaState
	work     map[Facet]*backlog[task]

	mu       sync.Mutex
	session  *session                    // the conversation under way, if any. Guarded by mu, as are all fields below
	requests map[objectKey]request       // the Puts and Deletes of that conversation that are not begun
	bytes    int                         // of the payloads in orders
	results  map[objectKey]pendingResult // how the peer fared with what it was sent, of which the source is still to be told
	paused   map[Facet]string            // the words of the brakes that the observer was last told of
}

// object is a key of a facet.
type objectKey struct {
	facet Facet
	key   Key
}

// task names work to be done for one object; there is no more than one of each at a time.
type task struct {
	objectKey

	reports bool // tell the source how it went; otherwise make or keep the replica's object as it should be
}

// order is a Put or Delete that a conversation brought.
type request struct {
	session *session
	message Message
}

// bytes returns the size of the payload.
func (o request) bytes() int {
	put, _ := o.message.(Put)
	return len(put.Payload)
}

// verdict is how the peer fared, as a conversation brought it.
type pendingResult struct {
	session *session
	result  Result
}

// errBusy means that Converse was called during a conversation.
var errSessionRunning = errors.New("a conversation with this peer is under way")

// NewPeer returns a peer that nothing is known of yet.
func NewPeer(o Options) *Peer {
	if o.ResyncEvery <= 0 {
		o.ResyncEvery = 5 * time.Minute
	}
	p := &Peer{
		options:  o,
		replicas: make(map[Facet]*replicaState),
		work:     make(map[Facet]*backlog[task]),
		requests: make(map[objectKey]request),
		results:  make(map[objectKey]pendingResult),
		paused:   make(map[Facet]string),
	}
	for f := range o.Sources {
		p.work[f] = newBacklog[task](make(chan struct{}, 1))
	}
	for f, h := range o.Replicas {
		p.work[f] = newBacklog[task](make(chan struct{}, 1))
		p.replicas[f] = newReplicaState(h)
	}
	return p
}

// Changed says that the object under a key may have changed in the cache of this side: a source's object that the peer
// should see, or a replica's object that may no longer be what was applied. It never blocks on anything but memory.
func (p *Peer) Changed(f Facet, k Key) {
	if keeper, ok := p.replicas[f]; ok {
		if keeper.needsCheck(k) {
			p.work[f].add(task{objectKey: objectKey{f, k}})
		}
		return
	}
	if s := p.current(); s != nil {
		if o := s.outboxes[f]; o != nil {
			o.sourceChanged(k)
		}
	}
}

// Compare has a facet compared now. It is for a cache that was replaced as a whole, so that what vanished from it is
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

// Release lets the deletions go that a brake holds back under this word, and reports whether there were any.
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

// Run does the work: applies what the peer sends, puts back what was changed, tells sources how it went. It returns when
// the context ends and all that it had begun is over.
func (p *Peer) Run(ctx context.Context) {
	var serving sync.WaitGroup
	for _, work := range p.work {
		serving.Go(func() { p.runFacet(ctx, work) })
	}
	serving.Wait()
}

// serve does the work of one facet.
func (p *Peer) runFacet(ctx context.Context, work *backlog[task]) {
	var running sync.WaitGroup
	defer running.Wait()
	defer work.close()
	slots := make(chan struct{}, workersPerFacet)
	for {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		t, ok := work.take()
		for !ok {
			select {
			case <-ctx.Done():
				return
			case <-work.wake:
				t, ok = work.take()
			}
		}
		running.Go(func() {
			defer func() { <-slots }()
			p.process(ctx, t)
		})
	}
}

// perform does one task.
func (p *Peer) process(ctx context.Context, t task) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if t.reports {
		p.reportResult(ctx, t)
		return
	}
	p.mu.Lock()
	o, ordered := p.requests[t.objectKey]
	delete(p.requests, t.objectKey)
	p.bytes -= o.bytes()
	p.mu.Unlock()
	if !ordered {
		p.restoreReplica(ctx, t)
		return
	}
	p.applyRequest(ctx, t, o)
	signal(o.session.room)
}

// obey does what a Put or Delete says.
func (p *Peer) applyRequest(ctx context.Context, t task, o request) {
	keeper := p.replicas[t.facet]
	ack, gone := Ack{Facet: t.facet, Key: t.key}, false
	switch m := o.message.(type) {
	case Put:
		ack.Seq, ack.Result = m.Seq, keeper.apply(ctx, t.key, m.Object)
		gone = ack.Absent
	case Delete:
		ack.Seq, ack.Result = m.Seq, keeper.remove(ctx, t.key, m.UID)
		gone = ack.Code == Done
		if ack.Code == Refused {
			p.options.Observer.Removed(t.facet, t.key, ack.Result)
		}
	}
	if keeper.Retain && gone {
		p.options.Observer.Removed(t.facet, t.key, ack.Result)
	}
	if p.current() == o.session {
		keeper.markAdvertised(t.key, ack.Result)
		o.session.enqueueControl(ack)
	}
	if ack.Code == Done {
		// What was spared is news to the source, and everything is if it has connected anew meanwhile.
		p.Changed(t.facet, t.key)
	}
	p.work[t.facet].done(t)
}

// settle tells the source how it went.
func (p *Peer) reportResult(ctx context.Context, t task) {
	p.mu.Lock()
	v, waiting := p.results[t.objectKey]
	delete(p.results, t.objectKey)
	p.mu.Unlock()
	if waiting {
		err := p.options.Sources[t.facet].ReportResult(ctx, t.key, v.result)
		if err != nil && !errors.Is(err, ErrRefused) && p.enqueueResult(t.objectKey, v, false) {
			p.work[t.facet].retry(t)
			return
		}
	}
	p.work[t.facet].done(t)
}

// keep looks at a replica's object and puts it back, or asks the source to.
func (p *Peer) restoreReplica(ctx context.Context, t task) {
	keeper, work := p.replicas[t.facet], p.work[t.facet]
	found := keeper.checkDrift(t.key)
	switch found.action {
	case waitFirst:
		work.later(t, found.wait)
		return
	case restore:
		r := keeper.apply(ctx, t.key, found.object)
		if r.Code != Done || !r.Absent {
			p.options.Observer.Repaired(t.facet, t.key, r)
		}
		if r.Code != Done {
			work.retry(t)
			return
		}
		found = keeper.afterRestore(t.key)
	case noAction, advertise:
	}
	if found.action == advertise {
		p.sendReplicaChanged(t, found.object.State)
	}
	work.done(t)
}

// notice tells the source, if it is there, what is held under a key.
func (p *Peer) sendReplicaChanged(t task, held State) {
	if s := p.current(); s != nil {
		s.enqueueControl(ReplicaChanged{Facet: t.facet, Key: t.key, State: held})
	}
}

// order has a Put or Delete obeyed. A newer one about the same object replaces an older one that was not begun.
func (p *Peer) enqueueRequest(o objectKey, by request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == by.session {
		p.bytes += by.bytes() - p.requests[o].bytes()
		p.requests[o] = by
		p.work[o.facet].add(task{objectKey: o})
	}
}

// ordered returns how many orders are not begun, and the bytes of their payloads.
func (p *Peer) pendingRequests() (orders, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests), p.bytes
}

// pass notes what the source is to be told, unless the conversation is over or, without replace, something newer is to be
// told. It reports whether there is something to tell then.
func (p *Peer) enqueueResult(o objectKey, v pendingResult, replace bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != v.session {
		return false
	}
	if _, newer := p.results[o]; !newer || replace {
		p.results[o] = v
	}
	return true
}

// judged takes in which deletions of a facet wait for a person's word, nil if none do, and tells the observer what is new.
func (p *Peer) notePaused(f Facet, paused *PausedDeletions) {
	p.mu.Lock()
	before, wasPaused := p.paused[f]
	if paused != nil {
		p.paused[f] = paused.Token
	} else {
		delete(p.paused, f)
	}
	p.mu.Unlock()
	switch {
	case paused != nil && paused.Token != before:
		p.options.Observer.DeletionsPaused(*paused)
	case paused == nil && wasPaused:
		p.options.Observer.DeletionsResumed(f)
	}
}

func (p *Peer) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// enter makes s the conversation under way.
func (p *Peer) beginSession(s *session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return errSessionRunning
	}
	p.session = s
	return nil
}

// leave ends the conversation: what its messages asked for and was not begun is forgotten. What was begun goes on; if that
// brings news, the next conversation tells it.
func (p *Peer) endSession() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = nil
	clear(p.requests)
	p.bytes = 0
	clear(p.results)
}
