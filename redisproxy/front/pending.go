package front

import "sync"

// maxPending limits the pending replies of a client. Replies to consecutive commands that are only passed on count as one.
const maxPending = 256

// expected is what is to be done with what Redis replies. The zero value of all but count is to pass it on.
type expected struct {
	verb  verb
	count int // of replies, or of confirmations that a command about subscriptions has

	protocol int        // that a HELLO asks for
	channels string     // the kind of subscription, in Redis' words
	read     *agentRead // the client gets the agent's answer instead
	into     *[]byte    // where the reply goes instead
}

// plain reports whether replies are only passed on.
func (e *expected) plain() bool { return e.verb == verbPlain && e.read == nil && e.into == nil }

// subscribes reports whether replies are confirmations of subscriptions.
func (e *expected) subscribes() bool { return e.verb == verbSubscribe || e.verb == verbUnsubscribe }

// pending are the replies that a client still waits for, in order.
type pending struct {
	mu         sync.Mutex
	changed    sync.Cond
	queue      []expected // from next on. Guarded by mu
	next       int        // Guarded by mu
	unanswered int        // how many were added and not answered. Guarded by mu
	closed     bool       // there will be no more replies. Guarded by mu
}

func newPending() *pending {
	p := &pending{}
	p.changed.L = &p.mu
	return p
}

// add adds up to maxPending, and waits until there is room. It reports whether there will be replies.
func (p *pending) add(batch []expected) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.unanswered+len(batch) > maxPending && !p.closed {
		p.changed.Wait()
	}
	if p.next == len(p.queue) {
		p.queue, p.next = p.queue[:0], 0
	}
	p.queue = append(p.queue, batch...)
	p.unanswered += len(batch)
	return !p.closed
}

// take returns what the next reply is for, and reports whether there is anything.
func (p *pending) take() (expected, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == len(p.queue) {
		return expected{}, false
	}
	e := p.queue[p.next]
	p.queue[p.next] = expected{}
	p.next++
	return e, true
}

// answered strikes off what take returned.
func (p *pending) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unanswered--
	p.changed.Broadcast()
}

// wait waits until no reply is pending, and reports whether all were answered.
func (p *pending) wait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.unanswered > 0 && !p.closed {
		p.changed.Wait()
	}
	return p.unanswered == 0 && !p.closed
}

// close says that there will be no more replies.
func (p *pending) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.changed.Broadcast()
}
