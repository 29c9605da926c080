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
	parallel = 32
	// patience is how long each may take. A connection that ends does not end it: a write that is broken off may have
	// happened all the same.
	patience = time.Minute
)

// Options say what a Peer keeps equal.
type Options struct {
	// Sources and Replicas are the facets of which this side has the truth, and those of which it has the copy.
	Sources  map[Facet]Origin
	Replicas map[Facet]Holding
	Observer Observer
	// CompareEvery is the time between comparisons of a facet, of which up to half is taken off at random. Zero means
	// five minutes.
	CompareEvery time.Duration
}

// Peer is the other side, as seen from this one: everything that is shared with it. It lives across connections.
// It does its work while Run runs; Converse holds one conversation with it, over one connection.
type Peer struct {
	options Options
	keepers map[Facet]*keeper
	work    map[Facet]*backlog[task]

	mu       sync.Mutex
	session  *session           // the conversation under way, if any. Guarded by mu, as are all fields below
	orders   map[object]order   // the Puts and Deletes of that conversation that are not begun
	bytes    int                // of the payloads in orders
	verdicts map[object]verdict // how the peer fared with what it was sent, of which the source is still to be told
	braked   map[Facet]string   // the words of the brakes that the observer was last told of
}

// object is a key of a facet.
type object struct {
	facet Facet
	key   Key
}

// task names work to be done for one object; there is no more than one of each at a time.
type task struct {
	object

	settle bool // tell the source how it went; otherwise make or keep the replica's object as it should be
}

// order is a Put or Delete that a conversation brought.
type order struct {
	session *session
	message Message
}

// bytes returns the size of the payload.
func (o order) bytes() int {
	put, _ := o.message.(Put)
	return len(put.Payload)
}

// verdict is how the peer fared, as a conversation brought it.
type verdict struct {
	session *session
	result  Result
}

// errBusy means that Converse was called during a conversation.
var errBusy = errors.New("a conversation with this peer is under way")

// NewPeer returns a peer that nothing is known of yet.
func NewPeer(o Options) *Peer {
	if o.CompareEvery <= 0 {
		o.CompareEvery = 5 * time.Minute
	}
	p := &Peer{
		options:  o,
		keepers:  make(map[Facet]*keeper),
		work:     make(map[Facet]*backlog[task]),
		orders:   make(map[object]order),
		verdicts: make(map[object]verdict),
		braked:   make(map[Facet]string),
	}
	for f := range o.Sources {
		p.work[f] = newBacklog[task](make(chan struct{}, 1))
	}
	for f, h := range o.Replicas {
		p.work[f] = newBacklog[task](make(chan struct{}, 1))
		p.keepers[f] = newKeeper(h)
	}
	return p
}

// Changed says that the object under a key may have changed in the cache of this side: a source's object that the peer
// should see, or a replica's object that may no longer be what was applied. It never blocks on anything but memory.
func (p *Peer) Changed(f Facet, k Key) {
	if keeper, ok := p.keepers[f]; ok {
		if keeper.moved(k) {
			p.work[f].add(task{object: object{f, k}})
		}
		return
	}
	if s := p.current(); s != nil {
		if o := s.outboxes[f]; o != nil {
			o.changed(k)
		}
	}
}

// Compare has a facet compared now. It is for a cache that was replaced as a whole, so that what vanished from it is
// judged together and not deleted one by one.
func (p *Peer) Compare(f Facet) {
	s := p.current()
	if s == nil {
		return
	}
	if _, ok := p.keepers[f]; ok {
		s.summarise(f)
		return
	}
	s.say(Inquiry{Facet: f})
}

// Release lets the deletions go that a brake holds back under this word, and reports whether there were any.
func (p *Peer) Release(f Facet, word string) bool {
	s := p.current()
	return s != nil && s.outboxes[f] != nil && s.outboxes[f].release(word)
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
		serving.Go(func() { p.serve(ctx, work) })
	}
	serving.Wait()
}

// serve does the work of one facet.
func (p *Peer) serve(ctx context.Context, work *backlog[task]) {
	var running sync.WaitGroup
	defer running.Wait()
	defer work.close()
	slots := make(chan struct{}, parallel)
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
			p.perform(ctx, t)
		})
	}
}

// perform does one task.
func (p *Peer) perform(ctx context.Context, t task) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if t.settle {
		p.settle(ctx, t)
		return
	}
	p.mu.Lock()
	o, ordered := p.orders[t.object]
	delete(p.orders, t.object)
	p.bytes -= o.bytes()
	p.mu.Unlock()
	if !ordered {
		p.keep(ctx, t)
		return
	}
	p.obey(ctx, t, o)
	signal(o.session.room)
}

// obey does what a Put or Delete says.
func (p *Peer) obey(ctx context.Context, t task, o order) {
	keeper := p.keepers[t.facet]
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
		keeper.acknowledged(t.key, ack.Result)
		o.session.say(ack)
	}
	if ack.Code == Done {
		// What was spared is news to the source, and everything is if it has connected anew meanwhile.
		p.Changed(t.facet, t.key)
	}
	p.work[t.facet].done(t)
}

// settle tells the source how it went.
func (p *Peer) settle(ctx context.Context, t task) {
	p.mu.Lock()
	v, waiting := p.verdicts[t.object]
	delete(p.verdicts, t.object)
	p.mu.Unlock()
	if waiting {
		err := p.options.Sources[t.facet].Settled(ctx, t.key, v.result)
		if err != nil && !errors.Is(err, ErrRefused) && p.pass(t.object, v, false) {
			p.work[t.facet].retry(t)
			return
		}
	}
	p.work[t.facet].done(t)
}

// keep looks at a replica's object and puts it back, or asks the source to.
func (p *Peer) keep(ctx context.Context, t task) {
	keeper, work := p.keepers[t.facet], p.work[t.facet]
	found := keeper.examine(t.key)
	switch found.drift {
	case tooSoon:
		work.later(t, found.pause)
		return
	case putBack:
		r := keeper.apply(ctx, t.key, found.object)
		if r.Code != Done || !r.Absent {
			p.options.Observer.Repaired(t.facet, t.key, r)
		}
		if r.Code != Done {
			work.retry(t)
			return
		}
		found = keeper.restored(t.key)
	case unchanged, notify:
	}
	if found.drift == notify {
		p.notice(t, found.object.State)
	}
	work.done(t)
}

// notice tells the source, if it is there, what is held under a key.
func (p *Peer) notice(t task, held State) {
	if s := p.current(); s != nil {
		s.say(Notice{Facet: t.facet, Key: t.key, State: held})
	}
}

// order has a Put or Delete obeyed. A newer one about the same object replaces an older one that was not begun.
func (p *Peer) order(o object, by order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == by.session {
		p.bytes += by.bytes() - p.orders[o].bytes()
		p.orders[o] = by
		p.work[o.facet].add(task{object: o})
	}
}

// ordered returns how many orders are not begun, and the bytes of their payloads.
func (p *Peer) ordered() (orders, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.orders), p.bytes
}

// pass notes what the source is to be told, unless the conversation is over or, without replace, something newer is to be
// told. It reports whether there is something to tell then.
func (p *Peer) pass(o object, v verdict, replace bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != v.session {
		return false
	}
	if _, newer := p.verdicts[o]; !newer || replace {
		p.verdicts[o] = v
	}
	return true
}

// judged takes in which deletions of a facet wait for a person's word, nil if none do, and tells the observer what is new.
func (p *Peer) judged(f Facet, b *Brake) {
	p.mu.Lock()
	before, braked := p.braked[f]
	if b != nil {
		p.braked[f] = b.Word
	} else {
		delete(p.braked, f)
	}
	p.mu.Unlock()
	switch {
	case b != nil && b.Word != before:
		p.options.Observer.Braked(*b)
	case b == nil && braked:
		p.options.Observer.Released(f)
	}
}

func (p *Peer) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// enter makes s the conversation under way.
func (p *Peer) enter(s *session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return errBusy
	}
	p.session = s
	return nil
}

// leave ends the conversation: what its messages asked for and was not begun is forgotten. What was begun goes on; if that
// brings news, the next conversation tells it.
func (p *Peer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = nil
	clear(p.orders)
	p.bytes = 0
	clear(p.verdicts)
}
