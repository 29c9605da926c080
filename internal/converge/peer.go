package converge

import (
	"context"
	"errors"
	"sync"
	"time"
)

// parallel is how many applies and settlements run at a time for one peer. Each is mostly the wait for an API server.
const parallel = 32

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
	work    *backlog[task]

	mu      sync.Mutex
	session *session     // the conversation under way, if any. Guarded by mu
	pending map[task]job // what its messages ask for, not yet begun. Guarded by mu
}

// task names work to be done for one key; there is no more than one of each at a time.
type task struct {
	facet  Facet
	key    Key
	settle bool // tell the source how it went; otherwise make or keep the replica's object as it should be
}

// job is a task that a message asks for.
type job struct {
	session *session
	message Message // Put, Delete or Ack
}

// errBusy means that Converse was called during a conversation.
var errBusy = errors.New("a conversation with this peer is under way")

// NewPeer returns a peer that nothing is known of yet.
func NewPeer(o Options) *Peer {
	if o.CompareEvery <= 0 {
		o.CompareEvery = 5 * time.Minute
	}
	p := &Peer{
		options: o,
		keepers: make(map[Facet]*keeper),
		work:    newBacklog[task](make(chan struct{}, 1)),
		pending: make(map[task]job),
	}
	for f, h := range o.Replicas {
		p.keepers[f] = newKeeper(h)
	}
	return p
}

// Changed says that the object under a key may have changed in the cache of this side: a source's object that the peer
// should see, or a replica's object that may no longer be what was applied. It never blocks on anything but memory.
func (p *Peer) Changed(f Facet, k Key) {
	if keeper, ok := p.keepers[f]; ok {
		if keeper.moved(k) {
			p.work.add(task{facet: f, key: k})
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
	var running sync.WaitGroup
	defer running.Wait()
	defer p.work.close()
	slots := make(chan struct{}, parallel)
	for {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		t, ok := p.work.take()
		for !ok {
			select {
			case <-ctx.Done():
				return
			case <-p.work.wake:
				t, ok = p.work.take()
			}
		}
		running.Go(func() {
			defer func() { <-slots }()
			p.perform(ctx, t)
		})
	}
}

// perform does one task: what a message asks for or, if none does, a look at whether the object is as it was applied.
func (p *Peer) perform(ctx context.Context, t task) {
	p.mu.Lock()
	j, asked := p.pending[t]
	delete(p.pending, t)
	p.mu.Unlock()
	switch {
	case asked:
		p.answer(t, j)
		signal(j.session.room)
		j.session.jobs.Done()
	case t.settle:
		p.work.done(t)
	default:
		p.keep(ctx, t)
	}
}

// answer does what a message asks for.
func (p *Peer) answer(t task, j job) {
	var r Result
	switch m := j.message.(type) {
	case Put:
		r = p.keepers[t.facet].apply(j.session.ctx, t.key, m.Object, true)
		j.session.say(Ack{Facet: t.facet, Key: t.key, Seq: m.Seq, Result: r})
	case Delete:
		r = p.keepers[t.facet].remove(j.session.ctx, t.key, m.UID)
		j.session.say(Ack{Facet: t.facet, Key: t.key, Seq: m.Seq, Result: r})
		p.Changed(t.facet, t.key) // what was spared is news to the source
	case Ack:
		if err := p.options.Sources[t.facet].Settled(j.session.ctx, t.key, m.Result); err != nil {
			p.assign(t, j, false)
			p.work.retry(t)
			return
		}
	}
	p.work.done(t)
}

// keep looks at a replica's object and puts it back, or asks the source to.
func (p *Peer) keep(ctx context.Context, t task) {
	keeper := p.keepers[t.facet]
	found := keeper.examine(t.key)
	switch found.drift {
	case tooSoon:
		p.work.later(t, found.pause)
		return
	case putBack:
		r := keeper.apply(ctx, t.key, found.object, false)
		p.options.Observer.Repaired(t.facet, t.key, r)
		if r.Code != Done {
			p.work.retry(t)
			return
		}
		found = keeper.restored(t.key)
	case unchanged, notify:
	}
	if found.drift == notify {
		p.notice(t, found.object.State)
	}
	p.work.done(t)
}

// notice tells the source, if it is there, what is held under a key.
func (p *Peer) notice(t task, held State) {
	if s := p.current(); s != nil {
		s.say(Notice{Facet: t.facet, Key: t.key, State: held})
	}
}

// assign has a task done because of a message. A newer message about the same task replaces an older one; what a settled
// task was to say is only repeated if nothing newer is to be said.
func (p *Peer) assign(t task, j job, replace bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, waiting := p.pending[t]
	if p.session != j.session || waiting && !replace {
		return
	}
	if !waiting {
		j.session.jobs.Add(1)
	}
	p.pending[t] = j
	if replace {
		p.work.add(t)
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

// leave ends the conversation: what its messages asked for and was not begun is forgotten, what was begun is waited for.
func (p *Peer) leave(s *session) {
	p.mu.Lock()
	p.session = nil
	for t := range p.pending {
		delete(p.pending, t)
		s.jobs.Done()
	}
	p.mu.Unlock()
	s.jobs.Wait()
}
