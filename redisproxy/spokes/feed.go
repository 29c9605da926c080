package spokes

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
)

// quiet is how long a feed may be silent before it is asked whether it still is one, and then has as long to answer.
const quiet = 10 * time.Second

var errIdle = errors.New("nobody is interested any more")

// attend follows the agent over one feed, and returns for how long.
func (p *spoke) attend(ctx context.Context) (lasted time.Duration, err error) {
	if agent, _ := p.spokes.options.Roster.Agent(p.name); !agent.Connected {
		return 0, errAway
	}
	c, err := p.spokes.open(ctx, p.name)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer func() { _ = c.Close() }()
	p.spokes.mu.Lock()
	p.current = c
	p.spokes.mu.Unlock()
	tracked, err := p.start(c)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	p.begun(tracked)
	err = p.listen(c)
	return time.Since(began), err
}

// start asks to be told of changes and messages, and reports whether it will be told of changes.
func (p *spoke) start(c *conn) (tracked bool, err error) {
	if err := c.SetDeadline(time.Now().Add(p.spokes.options.Timeout)); err != nil {
		return false, err
	}
	words := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	for _, prefix := range c.space.Tracked() {
		words = append(words, "PREFIX", prefix)
	}
	commands := append(command(words...), command("PSUBSCRIBE", c.space.Pattern(keys.Managed))...)
	if _, err := c.Write(commands); err != nil {
		return false, err
	}
	reply, err := c.next(maxTold, nil)
	if err != nil {
		return false, err
	}
	tracked = reply[0] == '+'
	if !tracked {
		p.spokes.metrics.untracked.Inc()
		p.spokes.options.Logger.Warn("An agent's Redis does not tell of changes: nothing of it is served from the cache",
			"agent", p.name, "reason", string(reply))
	}
	for {
		if reply, err = c.next(maxTold, nil); err != nil {
			return false, err
		}
		if reply[0] == '-' {
			return false, errors.Join(errAgent, errors.New(string(reply)))
		}
		if word(reply) == "psubscribe" {
			return tracked, nil
		} // a change may be told before
	}
}

// begun notes that the feed is there. Whoever follows a channel may have missed something before.
func (p *spoke) begun(tracked bool) {
	s := p.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	p.lives++
	p.live, p.tracked = true, tracked
	s.metrics.feeds.Inc()
	p.decided()
	for subject, channels := range s.subjects {
		if subject.agent == p.name {
			tell(channels, nil)
		}
	}
}

// listen takes in what the feed brings until it ends.
func (p *spoke) listen(c *conn) error {
	asked := false // whether it still is there
	for {
		if err := c.SetDeadline(time.Now().Add(quiet)); err != nil {
			return err
		}
		_, err := c.reader.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && !asked {
			if err := p.look(c); err != nil {
				return err
			}
			asked = true
			continue
		}
		if err != nil {
			return err
		}
		frame, err := c.next(maxTold, nil)
		if err != nil {
			return err
		}
		asked = false
		p.told(c, frame)
	}
}

// look is what is done from time to time.
func (p *spoke) look(c *conn) error {
	s := p.spokes
	s.mu.Lock()
	p.trim(time.Now().Add(-spareLife))
	wanted := p.wanted()
	s.mu.Unlock()
	if !wanted {
		return errIdle
	}
	if err := c.SetDeadline(time.Now().Add(quiet)); err != nil {
		return err
	}
	_, err := c.Write(command("PING"))
	return err
}

// told takes in one thing that the feed brought.
func (p *spoke) told(c *conn, frame []byte) {
	elements := resp.Elements(frame)
	switch word(frame) {
	case "invalidate":
		if len(elements) == 2 {
			p.changed(c, elements[1])
		}
	case "pmessage":
		if len(elements) != 4 {
			return
		}
		name, _ := resp.Text(elements[2])
		payload, _ := resp.Text(elements[3])
		if key, ok := c.space.Channel(string(name)); ok {
			p.announced(key, payload)
		}
	}
}

// changed takes in which keys have changed; all, if it is a null.
func (p *spoke) changed(c *conn, list []byte) {
	s := p.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	if resp.Null(list) {
		p.lives++
		for path := range p.calls {
			p.outdate(path)
		}
		return
	}
	for _, one := range resp.Elements(list) {
		name, _ := resp.Text(one)
		if len(name) < len(c.space.Prefix) {
			continue
		}
		path := string(name[len(c.space.Prefix):])
		if e := s.cache.Get(cache.ID{Agent: p.name, Path: path}); e != nil {
			e.Outdated = true
		}
		p.outdate(path)
	}
}

// outdate has nobody join a question that was asked before a change.
func (p *spoke) outdate(path string) {
	if c := p.calls[path]; c != nil {
		c.dirty = true
		delete(p.calls, path)
	}
}

// announced takes in that an application has changed. Redis may tell so before it tells which keys have: whoever asks for
// them now is not to get what they were.
func (p *spoke) announced(key keys.Key, payload []byte) {
	s := p.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.Outdate(p.name, key.Name)
	for path, c := range p.calls {
		if c.instance == key.Name {
			p.outdate(path)
		}
	}
	tell(s.subjects[subject{p.name, key.Name, key.Rest}], payload)
	s.tellPatterns(p.name, key, payload)
}

// word is the first word of a push.
func word(frame []byte) string {
	if frame[0] != '>' {
		return ""
	}
	elements := resp.Elements(frame)
	if len(elements) == 0 {
		return ""
	}
	first, _ := resp.Text(elements[0])
	return string(first)
}
