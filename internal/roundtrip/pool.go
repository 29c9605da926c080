package roundtrip

import (
	"slices"
	"sync"
	"time"
)

// pool keeps connections that nothing is said on, each for a while.
type pool struct {
	options Options

	mu    sync.Mutex
	hosts map[string][]*conn // the one that was used last is last. Guarded by mu
	count int                // of them all. Guarded by mu
}

func newPool(options Options) *pool {
	return &pool{options: options, hosts: make(map[string][]*conn)}
}

// take returns the connection to a host that was used last, nil if there is none.
func (p *pool) take(host string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.hosts[host]
	if len(kept) == 0 {
		return nil
	}
	c := kept[len(kept)-1]
	p.remove(c)
	c.timer.Stop()
	return c
}

// put keeps a connection for later, or closes it if there are enough.
func (p *pool) put(c *conn) {
	if !p.keep(c) {
		_ = c.Close() // nobody uses it
	}
}

func (p *pool) keep(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count >= p.options.MaxIdle || len(p.hosts[c.host]) >= p.options.MaxIdlePerHost {
		return false
	}
	p.hosts[c.host] = append(p.hosts[c.host], c)
	p.count++
	if c.timer == nil {
		c.timer = time.AfterFunc(p.options.IdleTimeout, func() { p.expire(c) })
	} else {
		c.timer.Reset(p.options.IdleTimeout)
	}
	return true
}

// remove removes a connection, and reports whether it was there. It is called with mu held.
func (p *pool) remove(c *conn) bool {
	kept := p.hosts[c.host]
	i := slices.Index(kept, c)
	if i < 0 {
		return false
	}
	p.count--
	if len(kept) == 1 {
		delete(p.hosts, c.host)
	} else {
		p.hosts[c.host] = slices.Delete(kept, i, i+1)
	}
	return true
}

// expire closes a connection that was in the pool for long, unless it was taken a moment ago.
func (p *pool) expire(c *conn) {
	p.mu.Lock()
	there := p.remove(c)
	p.mu.Unlock()
	if there {
		_ = c.Close() // nobody uses it
	}
}

// empty closes all connections.
func (p *pool) empty() {
	p.mu.Lock()
	all := p.hosts
	p.hosts, p.count = make(map[string][]*conn), 0
	p.mu.Unlock()
	for _, kept := range all {
		for _, c := range kept {
			c.timer.Stop()
			_ = c.Close() // nobody uses it
		}
	}
}
