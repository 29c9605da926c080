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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/bounds"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/clusterinfo"
)

// Read is the read of an agent's key.
type Read struct {
	spokes *Spokes
	target Target
	value  []byte // from the cache, if call is nil
	call   *call
	failed bool // the agent is not connected
}

// call is a read in flight, which all share who read the same key meanwhile.
type call struct {
	target Target
	done   chan struct{} // closed when value and err are there

	generation  uint64 // of the invalidation stream when the agent was asked; 0: there was none. Guarded by Spokes.mu
	invalidated bool   // the key has changed since. Guarded by Spokes.mu
	value       []byte
	err         error
}

// StartRead begins to read a key.
func (s *Spokes) StartRead(t Target) Read {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Read{spokes: s, target: t}
	agent, known := s.options.Directory.Agent(t.Agent)
	if !known { // any more, since Find
		s.metrics.miss.Inc()
		r.failed = true
		return r
	}
	p := s.spoke(t.Agent)
	p.lastRead = time.Now()
	if e := s.cache.Get(cache.ID{Agent: t.Agent, Path: t.Path}); e != nil && agent.Connected && p.fresh(e) {
		s.metrics.fresh.Inc()
		r.value = e.Value
		return r
	}
	s.metrics.miss.Inc()
	if !agent.Connected || s.startTask == nil {
		r.failed = true
		return r
	}
	p.agentConnected() // Run may not know yet
	p.ensureStream()
	if r.call = p.calls[t.Path]; r.call == nil {
		c := &call{target: t, done: make(chan struct{})}
		r.call, p.calls[t.Path] = c, c
		s.startTask(func(ctx context.Context) { p.fetch(ctx, c) })
	}
	return r
}

// Wait returns the value, as a RESP bulk string, or nil when there is none. A failure is for the user to see; err says that
// the context has ended.
func (r *Read) Wait(ctx context.Context) (value []byte, failure, err error) {
	if r.target.cluster {
		return r.waitClusterInfo(ctx)
	}
	value, failure, err = r.wait(ctx, r.spokes.options.Timeout)
	if failure != nil {
		failure = r.spokes.unavailable(r.target.Agent, failure)
	}
	return value, failure, err
}

var (
	errDisconnected = errors.New("it is not connected")
	errTimeout      = errors.New("it took too long")
	// errRefused is wrapped by errors about what an agent answered that is not passed on. An older value is not shown in its place:
	// nobody would learn why it does not change.
	errRefused = errors.New("refused a value of the agent's Redis")
)

// wait waits for the value until the timeout, and falls back to the last one that is cached.
func (r *Read) wait(ctx context.Context, timeout time.Duration) (value []byte, failure, err error) {
	switch {
	case r.failed:
		failure = errDisconnected
	case r.call == nil:
		return r.value, nil, nil
	default:
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-r.call.done:
			failure = r.call.err
		case <-timer.C:
			failure = errTimeout
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if failure == nil {
			return r.call.value, nil, nil
		}
		if errors.Is(failure, errRefused) {
			return nil, failure, nil
		}
	}
	s := r.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.cache.Get(cache.ID{Agent: r.target.Agent, Path: r.target.Path}); e != nil && e.Value != nil {
		s.metrics.stale.Inc()
		return e.Value, nil, nil
	}
	return nil, failure, nil
}

// waitClusterInfo returns the state of the agent's cluster. There is one even if nothing was read.
func (r *Read) waitClusterInfo(ctx context.Context) (value []byte, failure, err error) {
	own, _, err := r.wait(ctx, min(clusterInfoTimeout, r.spokes.options.Timeout))
	if err != nil {
		return nil, nil, err
	}
	text, _ := resp.Text(own)
	agent, _ := r.spokes.options.Directory.Agent(r.target.Agent)
	state := clusterinfo.State{Agent: r.target.Agent, Connected: agent.Connected, Since: agent.Since}
	state.Lost, state.Reason = r.spokes.options.Directory.Lost()
	info, failure := clusterinfo.Compose(text, r.target.compressed, state, time.Now())
	if failure != nil {
		return nil, failure, nil
	}
	return redcon.AppendBulk(nil, info), nil, nil
}

// fetch reads a key from the agent, and releases all who wait for it.
func (p *spoke) fetch(ctx context.Context, c *call) {
	began, path := time.Now(), c.target.Path
	c.value, c.err = p.readValue(ctx, c, path)
	if c.err != nil {
		c.value = nil
	}
	p.spokes.metrics.latency.Observe(time.Since(began).Seconds())
	if c.err != nil {
		p.spokes.metrics.failures.Inc()
	}
	p.spokes.mu.Lock()
	if p.calls[path] == c {
		delete(p.calls, path)
	}
	if c.err == nil {
		p.store(c, path)
	}
	p.reportRefusal(path, c.err)
	p.forgetIfGone()
	p.spokes.mu.Unlock()
	close(c.done)
}

// reportRefusal logs that a value is refused, once until it is not. It is called with mu held.
func (p *spoke) reportRefusal(path string, err error) {
	if !errors.Is(err, errRefused) {
		if err == nil {
			delete(p.refused, path)
		}
		return
	}
	if _, logged := p.refused[path]; logged || len(p.refused) >= maxRefused {
		return
	}
	p.refused[path] = none{}
	p.spokes.options.Logger.Warn("Refused a value of an agent's Redis", "agent", p.name, "key", path, "reason", err.Error())
}

// store puts a value into the cache. It is called with mu held.
func (p *spoke) store(c *call, path string) {
	if p.spokes.spokes[p.name] != p {
		return // the agent was forgotten meanwhile
	}
	id := cache.ID{Agent: p.name, Path: path}
	e := &cache.Entry{ID: id, Instance: c.target.Instance, Value: c.value, Generation: c.generation, Invalidated: c.invalidated}
	if now := p.spokes.cache.Get(id); now != nil && p.fresh(now) && !p.fresh(e) {
		return // which was read later, and answered earlier
	}
	p.spokes.cache.Put(e)
}

// readValue reads a key from the agent once the invalidation stream is open that reports its changes, or has failed.
func (p *spoke) readValue(ctx context.Context, c *call, path string) ([]byte, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, p.spokes.options.Timeout, errTimeout)
	defer cancel()
	p.spokes.mu.Lock()
	attempted := p.openAttempted
	p.spokes.mu.Unlock()
	select {
	case <-attempted:
	case <-waiting.Done():
		return nil, context.Cause(waiting)
	}
	select {
	case p.readSlots <- struct{}{}:
		defer func() { <-p.readSlots }()
	case <-waiting.Done():
		return nil, context.Cause(waiting)
	}
	used := p.takeIdle()
	if used != nil {
		value, err := p.readOver(ctx, used, c, path)
		if err == nil || !connectionLost(err) {
			return value, err
		}
	}
	fresh, err := p.spokes.dial(ctx, p.name)
	if err != nil {
		return nil, err
	}
	return p.readOver(ctx, fresh, c, path)
}

// connectionLost reports whether an error says that an idle connection was closed meanwhile.
func connectionLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.As(err, new(*net.OpError))
}

// readOver reads a key over a connection, which is kept for the next read if it still works.
func (p *spoke) readOver(ctx context.Context, at *conn, c *call, path string) (value []byte, err error) {
	stop := context.AfterFunc(ctx, func() { _ = at.Close() })
	defer func() {
		if stop(); err != nil && !errors.Is(err, errAgent) {
			_ = at.Close()
			return
		}
		p.putIdle(at)
	}()
	p.spokes.mu.Lock()
	c.generation = p.currentGeneration()
	p.spokes.mu.Unlock()
	asked := time.Now()
	if err := at.SetDeadline(asked.Add(p.spokes.options.Timeout)); err != nil {
		return nil, err
	}
	if _, err := at.Write(command("GET", at.space.Prefix+path)); err != nil {
		return nil, err
	}
	share := reading{spoke: p}
	defer share.release()
	reply, err := at.readReply(maxValue, func(n int) bool {
		if share.held == 0 { // it has begun; no byte pushes on when it must be over
			_ = at.SetReadDeadline(asked.Add(wholeValue * p.spokes.options.Timeout)) // fails only if it is closed
		}
		return share.take(int64(n))
	})
	switch {
	case share.refusal != nil:
		return nil, share.refusal
	case err != nil:
		return nil, err
	case resp.Null(reply):
		return nil, nil
	case reply[0] == '$':
		return reply, p.checkValue(c.target, reply)
	default:
		return nil, fmt.Errorf("%w: %.200q", errAgent, reply)
	}
}

// checkValue refuses a value that would become too large in argocd-server.
func (p *spoke) checkValue(t Target, reply []byte) error {
	text, _ := resp.Text(reply)
	if t.cluster {
		return nil
	}
	if err := bounds.Check(text, t.compressed, p.spokes.options.ValueLimits); err != nil {
		return fmt.Errorf("%w: %s: %w", errRefused, t.Path, err)
	}
	return nil
}

// reading is what a value takes of what may be read at once, while it is read.
type reading struct {
	spoke   *spoke
	held    int64
	refusal error // why nothing more may be taken
}

// take reports whether so many bytes more may be read. One agent cannot take what others need.
func (r *reading) take(n int64) bool {
	if r.held+n > maxValue {
		r.refusal = fmt.Errorf("%w: it has more than %d MiB", errRefused, maxValue>>20)
	} else if r.refusal = r.spoke.spokes.values.take(&r.spoke.share, n); r.refusal == nil {
		r.held += n
	}
	return r.refusal == nil
}

func (r *reading) release() { r.spoke.spokes.values.release(&r.spoke.share, r.held) }
