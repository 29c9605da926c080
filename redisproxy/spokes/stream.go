package spokes

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
)

// pingInterval is how long an invalidation stream may be silent before it is pinged, and then has as long to answer.
const pingInterval = 10 * time.Second

var (
	errIdle = errors.New("idle: no reads and no subscriptions")
	errLeft = errors.New("the principal that it went through shuts down")
)

// streamOnce opens an invalidation stream and follows it until it ends, and returns how long that was.
func (p *spoke) streamOnce(ctx context.Context) (lasted time.Duration, err error) {
	if agent, _ := p.spokes.options.Directory.Agent(p.name); !agent.Connected {
		return 0, errDisconnected
	}
	c, err := p.spokes.dial(ctx, p.name)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer func() { _ = c.Close() }()
	p.spokes.mu.Lock()
	p.stream = c
	p.spokes.mu.Unlock()
	tracking, err := p.subscribe(c)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	p.streamStarted(tracking)
	err = p.receive(c)
	p.spokes.mu.Lock()
	defer p.spokes.mu.Unlock()
	if c.departures != p.spokes.departures {
		err = errLeft
	}
	return time.Since(began), err
}

// subscribe asks for changed keys and for messages, and reports whether the agent's Redis can report changed keys.
func (p *spoke) subscribe(c *conn) (tracking bool, err error) {
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
	reply, err := c.readReply(maxFrame, nil)
	if err != nil {
		return false, err
	}
	tracking = reply[0] == '+'
	if !tracking {
		p.spokes.metrics.untracked.Inc()
		p.spokes.options.Logger.Warn("Agent's Redis does not support client tracking; its values are not served from the cache",
			"agent", p.name, "err", strings.TrimSpace(string(reply)))
	}
	for {
		if reply, err = c.readReply(maxFrame, nil); err != nil {
			return false, err
		}
		if reply[0] == '-' {
			return false, errors.Join(errAgent, errors.New(string(reply)))
		}
		if pushKind(reply) == "psubscribe" {
			return tracking, nil
		} // a changed key may be reported before
	}
}

// streamStarted notes that the stream is open. Subscribers may have missed a message before, and so get an empty one.
func (p *spoke) streamStarted(tracking bool) {
	s := p.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	p.generation++
	p.streamUp, p.tracking = true, tracking
	s.metrics.streams.Inc()
	p.markOpenAttempted()
	for topic, channels := range s.topics {
		if topic.agent == p.name {
			notify(channels, nil)
		}
	}
}

// receive handles what the stream brings until it ends.
func (p *spoke) receive(c *conn) error {
	pinged := false
	for {
		if err := c.SetDeadline(time.Now().Add(pingInterval)); err != nil {
			return err
		}
		_, err := c.reader.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && !pinged {
			if err := p.checkIdle(c); err != nil {
				return err
			}
			pinged = true
			continue
		}
		if err != nil {
			return err
		}
		frame, err := c.readReply(maxFrame, nil)
		if err != nil {
			return err
		}
		pinged = false
		p.handlePush(c, frame)
	}
}

// checkIdle pings a silent stream, or ends it with errIdle.
func (p *spoke) checkIdle(c *conn) error {
	s := p.spokes
	s.mu.Lock()
	p.closeIdle(time.Now().Add(-idleConnTimeout))
	wanted := p.streamWanted()
	s.mu.Unlock()
	if !wanted {
		return errIdle
	}
	if err := c.SetDeadline(time.Now().Add(pingInterval)); err != nil {
		return err
	}
	_, err := c.Write(command("PING"))
	return err
}

// handlePush handles a changed key or a message.
func (p *spoke) handlePush(c *conn, frame []byte) {
	elements := resp.Elements(frame)
	switch pushKind(frame) {
	case "invalidate":
		if len(elements) == 2 {
			p.invalidate(c, elements[1])
		}
	case "pmessage":
		if len(elements) != 4 {
			return
		}
		name, _ := resp.Text(elements[2])
		payload, _ := resp.Text(elements[3])
		if key, ok := c.space.Channel(string(name)); ok {
			p.applicationChanged(key, payload)
		}
	}
}

// invalidate takes in which keys have changed: all, if the list is a null.
func (p *spoke) invalidate(c *conn, list []byte) {
	s := p.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	if resp.Null(list) {
		p.generation++
		for path := range p.calls {
			p.detachRead(path)
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
			e.Invalidated = true
		}
		p.detachRead(path)
	}
}

// detachRead keeps later requests from joining a read that began before a change.
func (p *spoke) detachRead(path string) {
	if c := p.calls[path]; c != nil {
		c.invalidated = true
		delete(p.calls, path)
	}
}

// applicationChanged takes in that an application has changed. Redis may send this message before the invalidation of the
// application's keys: who reads them on the message is not to get their old values.
func (p *spoke) applicationChanged(key keys.Key, payload []byte) {
	s := p.spokes
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.Invalidate(p.name, key.Name)
	for path, c := range p.calls {
		if c.target.Instance == key.Name {
			p.detachRead(path)
		}
	}
	notify(s.topics[topic{p.name, key.Name, key.Rest}], payload)
	s.notifyPatterns(p.name, key, payload)
}

// pushKind returns the first word of a push.
func pushKind(frame []byte) string {
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
