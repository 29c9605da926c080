package upstream

import (
	"context"
	"errors"
	"sync"
	"time"
)

// pause is how long nobody tries to share a connection after that did not work. Clients use their own meanwhile.
const pause = time.Second

// errClosed is for those who come after the end.
var errClosed = errors.New("the program is about to end")

// Pool holds the shared connections, one per identity.
type Pool struct {
	options Options
	readers sync.WaitGroup

	mu     sync.Mutex
	places map[Identity]*place // Guarded by mu
	closed bool                // Guarded by mu
}

// place is where the shared connection of an identity is, if there is one.
type place struct {
	users int // Guarded by Pool.mu

	opening sync.Mutex // is held while a connection is made, and guards the rest
	shared  *Shared
	again   time.Time // no attempt before
}

// NewPool returns a pool without connections.
func NewPool(o Options) *Pool { return &Pool{options: o, places: make(map[Identity]*place)} }

// Place is a client's right to use the shared connection of an identity.
type Place struct {
	pool *Pool
	id   Identity
	in   *place
}

// Enter gives that right. It must be given back by Leave.
func (p *Pool) Enter(id Identity) Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.places[id]
	if in == nil {
		in = &place{}
		p.places[id] = in
	}
	in.users++
	return Place{p, id, in}
}

// Entered reports whether there is something to leave.
func (p Place) Entered() bool { return p.in != nil }

// Leave gives the right back. When nobody has it, the connection is closed.
func (p Place) Leave() {
	p.pool.mu.Lock()
	p.in.users--
	last := p.in.users == 0
	if last {
		delete(p.pool.places, p.id)
	}
	p.pool.mu.Unlock()
	if last {
		p.in.close()
	}
}

func (in *place) close() {
	in.opening.Lock()
	defer in.opening.Unlock()
	if in.shared != nil {
		_ = in.shared.conn.Close()
	}
}

// Shared returns the connection, and makes it when there is none. A client that gets an error uses its own.
func (p Place) Shared(ctx context.Context) (*Shared, error) {
	p.in.opening.Lock()
	defer p.in.opening.Unlock()
	if p.in.shared != nil && !p.in.shared.failed() {
		return p.in.shared, nil
	}
	if time.Now().Before(p.in.again) {
		return nil, errors.New("the last attempt was a moment ago")
	}
	p.in.again = time.Now().Add(pause)
	conn, err := p.pool.options.openAs(ctx, p.id)
	if err != nil {
		return nil, err
	}
	s := &Shared{conn: conn}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if p.pool.closed {
		_ = conn.Close()
		return nil, errClosed
	}
	p.in.shared, p.in.again = s, time.Time{}
	p.pool.readers.Go(s.read)
	return s, nil
}

// Close ends all connections, and waits for what runs on them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var places []*place
	for _, in := range p.places {
		places = append(places, in)
	}
	p.mu.Unlock()
	for _, in := range places {
		in.close()
	}
	p.readers.Wait()
}
