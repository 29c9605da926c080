package roundtrip

import (
	"slices"
	"sync"
	"time"
)

// pool keeps connections that nothing is said on, each for a while.
type pool struct {
	options Options

	mu     sync.Mutex
	hosts  map[string][]*conn // none is empty; who came last is last. Guarded by mu
	count  int                // of them all. Guarded by mu
	closed bool               // nothing was wanted since close. Guarded by mu
}

func newPool(options Options) *pool {
	return &pool{options: options, hosts: make(map[string][]*conn)}
}

// take returns the connection to a host that came last, nil if there is none.
func (p *pool) take(host string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = false
	kept := p.hosts[host]
	if len(kept) == 0 {
		return nil
	}
	c := kept[len(kept)-1]
	p.remove(c)
	return c
}

// put keeps a connection for later. It closes one if there are too many: of a host the new one, of all the oldest.
func (p *pool) put(c *conn) {
	if surplus := p.keep(c); surplus != nil {
		_ = surplus.Close() // nobody uses it
	}
}

// keep keeps a connection, and returns the one that is too many, nil if there is none.
func (p *pool) keep(c *conn) (surplus *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.used = true
	if p.closed || len(p.hosts[c.host]) >= p.options.MaxIdlePerHost {
		return c
	}
	p.hosts[c.host] = append(p.hosts[c.host], c)
	p.count++
	c.since = time.Now()
	if c.expiry == nil {
		c.expiry = time.AfterFunc(p.options.IdleTimeout, func() { p.expire(c) })
	} else {
		c.expiry.Reset(p.options.IdleTimeout)
	}
	if p.count > p.options.MaxIdle {
		surplus = p.oldest()
		p.remove(surplus)
	}
	return surplus
}

// oldest returns the connection that came first. It is called with mu held, and there is one.
func (p *pool) oldest() *conn {
	var found *conn
	for _, kept := range p.hosts {
		if found == nil || kept[0].since.Before(found.since) {
			found = kept[0]
		}
	}
	return found
}

// remove removes a connection, and reports whether it was there. It is called with mu held.
func (p *pool) remove(c *conn) bool {
	kept := p.hosts[c.host]
	i := slices.Index(kept, c)
	if i < 0 {
		return false
	}
	c.expiry.Stop()
	p.count--
	if len(kept) == 1 {
		delete(p.hosts, c.host)
	} else {
		p.hosts[c.host] = slices.Delete(kept, i, i+1)
	}
	return true
}

// expire closes a connection whose time is over, unless it was taken a moment ago.
func (p *pool) expire(c *conn) {
	p.mu.Lock()
	there := p.remove(c)
	p.mu.Unlock()
	if there {
		_ = c.Close() // nobody uses it
	}
}

// close closes all connections, and keeps none until one is wanted again.
func (p *pool) close() {
	p.mu.Lock()
	all := p.hosts
	p.hosts, p.count, p.closed = make(map[string][]*conn), 0, true
	p.mu.Unlock()
	for _, kept := range all {
		for _, c := range kept {
			c.expiry.Stop()
			_ = c.Close() // nobody uses it
		}
	}
}
