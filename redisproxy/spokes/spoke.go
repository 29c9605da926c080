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
	// atOnce is how many values are read from one agent at once, and spares how many connections for that are kept.
	atOnce = 8
	spares = 2
	// linger is how long an agent is followed after the last question, when nobody follows its channels.
	linger = 10 * time.Minute
	// spareLife is how long a connection is kept that nobody uses.
	spareLife = time.Minute

	firstPause   = 250 * time.Millisecond
	longestPause = 30 * time.Second
)

// spoke is one agent. All that changes is guarded by Spokes.mu.
type spoke struct {
	spokes *Spokes
	name   string
	turns  chan struct{} // to read a value

	calls     map[string]*call // by path; those that one may join
	idle      []*conn
	asked     time.Time // when somebody asked last
	followers int       // channels of the agent's that somebody follows

	feeding bool            // feed runs
	opened  chan struct{}   // closed as long as there is no feed that is about to be
	live    bool            // the feed is there
	tracked bool            // and tells of changes
	lives   uint64          // how many feeds there have been
	current *conn           // the feed's
	known   directory.Agent // what was known when the feed was last tried
	news    signal.Signal   // the agent has connected
}

func newSpoke(s *Spokes, name string) *spoke {
	opened := make(chan struct{})
	close(opened)
	return &spoke{
		spokes: s, name: name, turns: make(chan struct{}, atOnce), calls: make(map[string]*call),
		opened: opened, news: signal.New(),
	}
}

// living returns which feed of the agent's tells of changes now: 0 if none does.
func (p *spoke) living() uint64 {
	if p.live && p.tracked {
		return p.lives
	}
	return 0
}

func (p *spoke) fresh(e *cache.Entry) bool {
	return !e.Outdated && e.Life != 0 && e.Life == p.living()
}

// wanted reports whether the agent's feed is of use to anybody.
func (p *spoke) wanted() bool {
	return p.followers > 0 || len(p.spokes.patterns) > 0 || time.Since(p.asked) < linger
}

// follow has the agent followed, if it is not.
func (p *spoke) follow() {
	if p.feeding || p.spokes.begin == nil {
		return
	}
	p.feeding = true
	p.opened = make(chan struct{})
	p.spokes.begin(p.feed)
}

// decided has nobody wait for the feed any longer: it is there, or is not.
func (p *spoke) decided() {
	select {
	case <-p.opened:
	default:
		close(p.opened)
	}
}

// wake tries again to follow an agent that has connected since.
func (p *spoke) wake() {
	now, _ := p.spokes.options.Roster.Agent(p.name)
	if now.Connected == p.known.Connected && now.Since.Equal(p.known.Since) {
		return
	}
	p.known = now
	if p.feeding && !p.live {
		p.decided()
		p.opened = make(chan struct{})
	}
	p.news.Give()
	if p.wanted() {
		p.follow()
	}
}

// cut gives up what there is of connections to the agent: it is away.
func (p *spoke) cut() {
	p.known, _ = p.spokes.options.Roster.Agent(p.name)
	p.ended()
	if p.current != nil {
		_ = p.current.Close()
	}
	p.trim(time.Time{})
}

// ended notes that there is no feed.
func (p *spoke) ended() {
	if p.live {
		p.live = false
		p.spokes.metrics.feeds.Dec()
	}
}

// trim closes spare connections that have not been used since.
func (p *spoke) trim(since time.Time) {
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

// idleConn returns a spare connection, or nil.
func (p *spoke) idleConn() *conn {
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

// giveBack keeps a connection as a spare one, if there is use for it.
func (p *spoke) giveBack(c *conn) {
	p.spokes.mu.Lock()
	defer p.spokes.mu.Unlock()
	if len(p.idle) >= spares || !p.feeding || p.spokes.begin == nil {
		_ = c.Close()
		return
	}
	c.used = time.Now()
	p.idle = append(p.idle, c)
}

// feed keeps the agent followed until nobody is interested any more, or the context ends.
func (p *spoke) feed(ctx context.Context) {
	pause := firstPause
	for {
		lasted, err := p.attend(ctx)
		if !p.again(ctx) {
			return
		}
		if lasted > longestPause {
			pause = firstPause
		}
		if err != nil && !errors.Is(err, errAway) {
			p.spokes.options.Logger.Info("An agent's changes are not followed", "agent", p.name, "reason", err.Error(), "retry", pause.String())
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2)) //nolint:gosec // so that agents are not all tried at once
		select {
		case <-ctx.Done():
		case <-p.news:
			pause = firstPause
		case <-timer.C:
			pause = min(2*pause, longestPause)
		}
		timer.Stop()
	}
}

// again notes that the feed has ended, and reports whether another one is wanted.
func (p *spoke) again(ctx context.Context) bool {
	p.spokes.mu.Lock()
	defer p.spokes.mu.Unlock()
	p.ended()
	p.current = nil
	p.decided()
	if ctx.Err() == nil && p.wanted() {
		return true
	}
	p.feeding = false
	p.trim(time.Time{})
	return false
}
