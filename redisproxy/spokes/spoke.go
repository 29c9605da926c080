package spokes

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
)

const (
	// maxReads is how many values are read from one agent at once. maxIdle is how many idle connections are kept for that, and
	// idleConnTimeout how long.
	maxReads        = 8
	maxIdle         = 2
	idleConnTimeout = time.Minute
	// idleTimeout is how long an invalidation stream stays after the last read, when nobody subscribes to the agent's channels.
	idleTimeout = 10 * time.Minute

	// maxRefused is how many of an agent's values are remembered whose refusal was logged.
	maxRefused = 100

	minBackoff = 250 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// spoke is one agent: its invalidation stream, its idle connections, and the reads in flight. All that changes is guarded by
// Spokes.mu.
type spoke struct {
	spokes    *Spokes
	name      string
	readSlots chan struct{} // limits reads to maxReads
	share     share         // of bytes that are being read from it

	calls       map[string]*call // reads in flight that others may join, by path
	idle        []*conn
	lastRead    time.Time       // when StartRead was last called
	refused     map[string]none // values whose refusal was logged, by path
	subscribers int             // how many of the agent's channels somebody subscribes to

	streaming     bool            // runStream runs
	openAttempted chan struct{}   // closed unless a stream is being opened
	streamUp      bool            // the stream is open
	tracking      bool            // and reports changed keys
	generation    uint64          // how many streams there have been; counts a flush of all keys too
	stream        *conn           // the stream's connection
	lastState     directory.Agent // what the directory said when the stream was last tried
	reconnected   signal.Signal   // the agent has connected
}

func newSpoke(s *Spokes, name string) *spoke {
	closed := make(chan struct{})
	close(closed)
	return &spoke{
		spokes: s, name: name, readSlots: make(chan struct{}, maxReads), refused: make(map[string]none),
		calls:         make(map[string]*call),
		openAttempted: closed, reconnected: signal.New(),
	}
}

// currentGeneration returns the generation of the stream that reports changed keys now: 0 if none does.
func (p *spoke) currentGeneration() uint64 {
	if p.streamUp && p.tracking {
		return p.generation
	}
	return 0
}

// fresh reports whether a cached value is what the agent has now.
func (p *spoke) fresh(e *cache.Entry) bool {
	return !e.Invalidated && e.Generation != 0 && e.Generation == p.currentGeneration()
}

// forgetIfGone forgets all about an agent that the directory knows no more, once nothing of it is in use. An agent that gets the
// same name later is another one.
func (p *spoke) forgetIfGone() {
	s := p.spokes
	if _, known := s.options.Directory.Agent(p.name); known || p.streaming || p.subscribers > 0 || len(p.calls) > 0 {
		return
	}
	p.closeIdle(time.Time{})
	s.cache.RemoveAgent(p.name)
	if s.spokes[p.name] == p {
		delete(s.spokes, p.name)
	}
}

// streamWanted reports whether the invalidation stream is of use to anybody.
func (p *spoke) streamWanted() bool {
	if _, known := p.spokes.options.Directory.Agent(p.name); !known {
		return false
	}
	return p.subscribers > 0 || len(p.spokes.patterns) > 0 || time.Since(p.lastRead) < idleTimeout
}

// ensureStream starts the invalidation stream, unless it runs.
func (p *spoke) ensureStream() {
	if p.streaming || p.spokes.startTask == nil {
		return
	}
	p.streaming = true
	p.openAttempted = make(chan struct{})
	p.spokes.startTask(p.runStream)
}

// markOpenAttempted wakes whoever waits for the stream: it is open, or has failed.
func (p *spoke) markOpenAttempted() {
	select {
	case <-p.openAttempted:
	default:
		close(p.openAttempted)
	}
}

// agentConnected opens the stream to an agent that has connected since it was last tried.
func (p *spoke) agentConnected() {
	now, _ := p.spokes.options.Directory.Agent(p.name)
	if now.Connected == p.lastState.Connected && now.Since.Equal(p.lastState.Since) {
		return
	}
	p.lastState = now
	if p.streaming && !p.streamUp {
		p.markOpenAttempted()
		p.openAttempted = make(chan struct{})
	}
	p.reconnected.Give()
	if p.streamWanted() {
		p.ensureStream()
	}
}

// agentDisconnected closes all connections to the agent.
func (p *spoke) agentDisconnected() {
	p.lastState, _ = p.spokes.options.Directory.Agent(p.name)
	p.streamEnded()
	if p.stream != nil {
		_ = p.stream.Close()
	}
	p.closeIdle(time.Time{})
}

// streamEnded notes that there is no stream.
func (p *spoke) streamEnded() {
	if p.streamUp {
		p.streamUp = false
		p.spokes.metrics.streams.Dec()
	}
}

// closeIdle closes idle connections that have not been used since then, or all for the zero time.
func (p *spoke) closeIdle(since time.Time) {
	kept := p.idle[:0]
	for _, c := range p.idle {
		if since.IsZero() || c.used.Before(since) {
			_ = c.Close()
		} else {
			kept = append(kept, c)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
}

// takeIdle returns an idle connection, or nil.
func (p *spoke) takeIdle() *conn {
	p.spokes.mu.Lock()
	defer p.spokes.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	c := p.idle[last]
	p.idle = p.idle[:last]
	return c
}

// putIdle keeps a connection for the next read, if there is use for it.
func (p *spoke) putIdle(c *conn) {
	p.spokes.mu.Lock()
	defer p.spokes.mu.Unlock()
	if len(p.idle) >= maxIdle || !p.streaming || p.spokes.startTask == nil || c.departures != p.spokes.departures {
		_ = c.Close()
		return
	}
	c.used = time.Now()
	p.idle = append(p.idle, c)
}

// runStream keeps the invalidation stream open until it is idle, or the context ends.
func (p *spoke) runStream(ctx context.Context) {
	backoff := minBackoff
	for {
		lasted, err := p.streamOnce(ctx)
		if !p.streamAgain(ctx) {
			return
		}
		if lasted > maxBackoff {
			backoff = minBackoff
		}
		if err != nil && !errors.Is(err, errDisconnected) && !errors.Is(err, errLeft) {
			p.spokes.options.Logger.Info("Invalidation stream from agent's Redis failed; retrying",
				"agent", p.name, "err", err, "backoff", backoff)
		}
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2)) //nolint:gosec // so that agents are not all tried at once
		select {
		case <-ctx.Done():
		case <-p.reconnected:
			backoff = minBackoff
		case <-timer.C:
			backoff = min(2*backoff, maxBackoff)
		}
		timer.Stop()
	}
}

// streamAgain notes that the stream has ended, and reports whether another one is wanted.
func (p *spoke) streamAgain(ctx context.Context) bool {
	p.spokes.mu.Lock()
	defer p.spokes.mu.Unlock()
	p.streamEnded()
	p.stream = nil
	p.markOpenAttempted()
	if ctx.Err() == nil && p.streamWanted() {
		return true
	}
	p.streaming = false
	p.closeIdle(time.Time{})
	p.forgetIfGone()
	return false
}
