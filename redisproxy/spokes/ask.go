package spokes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/clusterinfo"
)

// Question is a key that was asked for.
type Question struct {
	spokes *Spokes
	target Target
	value  []byte // the answer, if call is nil and failure too
	call   *call
	failed bool // the agent cannot be asked
}

// call is a key that an agent is being asked for, on behalf of all who ask meanwhile.
type call struct {
	instance string
	done     chan struct{} // closed when value and err are there

	life  uint64 // of the feed when the agent was asked; 0: there was none. Guarded by Spokes.mu
	dirty bool   // the agent has spoken of the key since. Guarded by Spokes.mu
	value []byte
	err   error
}

// Ask begins to find out what is kept under a key.
func (s *Spokes) Ask(t Target) Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := Question{spokes: s, target: t}
	p := s.spoke(t.Agent)
	p.asked = time.Now()
	agent, _ := s.options.Roster.Agent(t.Agent)
	if e := s.cache.Get(cache.ID{Agent: t.Agent, Path: t.Path}); e != nil && agent.Connected && p.fresh(e) {
		s.metrics.fresh.Inc()
		q.value = e.Value
		return q
	}
	s.metrics.miss.Inc()
	if !agent.Connected || s.begin == nil {
		q.failed = true
		return q
	}
	p.wake() // Run may not have heard of it yet
	p.follow()
	if q.call = p.calls[t.Path]; q.call == nil {
		c := &call{instance: t.Instance, done: make(chan struct{})}
		q.call, p.calls[t.Path] = c, c
		s.begin(func(ctx context.Context) { p.fetch(ctx, c, t.Path) })
	}
	return q
}

// Wait returns the value, as a RESP bulk string, or nil when there is none. A failure is for the person who asks; err says
// that nobody asks any more.
func (q *Question) Wait(ctx context.Context) (value []byte, failure, err error) {
	if q.target.cluster {
		return q.waitCluster(ctx)
	}
	value, failure, err = q.wait(ctx, q.spokes.options.Timeout)
	if failure != nil {
		failure = q.spokes.unavailable(q.target.Agent, failure)
	}
	return value, failure, err
}

var (
	errAway = errors.New("it is not connected")
	errSlow = errors.New("it took too long")
)

// wait waits for the answer for so long, and else takes the last one that is known.
func (q *Question) wait(ctx context.Context, patience time.Duration) (value []byte, failure, err error) {
	switch {
	case q.failed:
		failure = errAway
	case q.call == nil:
		return q.value, nil, nil
	default:
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-q.call.done:
			failure = q.call.err
		case <-timer.C:
			failure = errSlow
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if failure == nil {
			return q.call.value, nil, nil
		}
	}
	s := q.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.cache.Get(cache.ID{Agent: q.target.Agent, Path: q.target.Path}); e != nil && e.Value != nil {
		s.metrics.stale.Inc()
		return e.Value, nil, nil
	}
	return nil, failure, nil
}

// waitCluster returns the state of the agent's cluster: whatever is known of it, there is one.
func (q *Question) waitCluster(ctx context.Context) (value []byte, failure, err error) {
	own, _, err := q.wait(ctx, min(infoPatience, q.spokes.options.Timeout))
	if err != nil {
		return nil, nil, err
	}
	text, _ := resp.Text(own)
	agent, _ := q.spokes.options.Roster.Agent(q.target.Agent)
	state := clusterinfo.State{Agent: q.target.Agent, Connected: agent.Connected, Since: agent.Since}
	info, failure := clusterinfo.Compose(text, q.target.compressed, state, time.Now())
	if failure != nil {
		return nil, failure, nil
	}
	return redcon.AppendBulk(nil, info), nil, nil
}

// fetch asks the agent, and tells all who wait.
func (p *spoke) fetch(ctx context.Context, c *call, path string) {
	began := time.Now()
	c.value, c.err = p.get(ctx, c, path)
	p.spokes.metrics.latency.Observe(time.Since(began).Seconds())
	if c.err != nil {
		p.spokes.metrics.failures.Inc()
	}
	p.spokes.mu.Lock()
	if p.calls[path] == c {
		delete(p.calls, path)
	}
	if c.err == nil {
		p.keep(c, path)
	}
	p.spokes.mu.Unlock()
	close(c.done)
}

// keep puts an answer into the cache. It is called with mu held.
func (p *spoke) keep(c *call, path string) {
	id := cache.ID{Agent: p.name, Path: path}
	e := &cache.Entry{ID: id, Instance: c.instance, Value: c.value, Life: c.life, Outdated: c.dirty}
	if now := p.spokes.cache.Get(id); now != nil && p.fresh(now) && !p.fresh(e) {
		return // asked for later, answered earlier
	}
	p.spokes.cache.Put(e)
}

// get asks the agent for a key when the feed is there that tells of its changes, or cannot be.
func (p *spoke) get(ctx context.Context, c *call, path string) ([]byte, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, p.spokes.options.Timeout, errSlow)
	defer cancel()
	p.spokes.mu.Lock()
	opened := p.opened
	p.spokes.mu.Unlock()
	select {
	case <-opened:
	case <-waiting.Done():
		return nil, context.Cause(waiting)
	}
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-waiting.Done():
		return nil, context.Cause(waiting)
	}
	used := p.idleConn()
	if used != nil {
		value, err := p.exchange(ctx, used, c, path)
		if err == nil || !stale(err) {
			return value, err
		}
	}
	fresh, err := p.spokes.open(ctx, p.name)
	if err != nil {
		return nil, err
	}
	return p.exchange(ctx, fresh, c, path)
}

// stale reports whether an error says that a connection was not there any more.
func stale(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.As(err, new(*net.OpError))
}

// exchange asks over a connection, which is kept for the next question if it still works.
func (p *spoke) exchange(ctx context.Context, at *conn, c *call, path string) (value []byte, err error) {
	stop := context.AfterFunc(ctx, func() { _ = at.Close() })
	defer func() {
		if stop(); err != nil && !errors.Is(err, errAgent) {
			_ = at.Close()
			return
		}
		p.giveBack(at)
	}()
	p.spokes.mu.Lock()
	c.life = p.living()
	p.spokes.mu.Unlock()
	limit := p.spokes.options.Timeout
	if err := at.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	if _, err := at.Write(command("GET", at.space.Prefix+path)); err != nil {
		return nil, err
	}
	held := 0
	defer func() { p.spokes.values.Release(int64(held)) }()
	reply, err := at.next(maxValue, func(n int) bool {
		_ = at.SetReadDeadline(time.Now().Add(limit)) // as long as it comes, it may take
		ok := p.spokes.values.TryAcquire(int64(n))
		if ok {
			held += n
		}
		return ok
	})
	switch {
	case err != nil:
		return nil, err
	case resp.Null(reply):
		return nil, nil
	case reply[0] == '$':
		return reply, nil
	default:
		return nil, fmt.Errorf("%w: %.200q", errAgent, reply)
	}
}
