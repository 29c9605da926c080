package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/authn"
)

// call is a conversation that a component wants or has.
type call struct {
	agent  string
	target string
	dialer tunnelv1.Relay_DialServer
	taken  chan struct{} // closed when the agent has taken it up
	done   chan struct{} // closed by finish
	cause  error         // why it is over, nil if both ends are through. Set once, before done is closed
	once   sync.Once
}

// finish ends the conversation for both ends.
func (c *call) finish(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.done)
	})
}

// Dial puts a component through to an agent.
func (e *Exchange) Dial(stream tunnelv1.Relay_DialServer) error {
	ctx, who, err := e.options.Gate.Component(stream.Context())
	if err != nil {
		return err
	}
	defer who.End()
	c := &call{dialer: stream, taken: make(chan struct{}), done: make(chan struct{})}
	if c.agent, err = one(ctx, tunnel.MetadataAgent); err != nil {
		return err
	}
	if c.target, err = one(ctx, tunnel.MetadataTarget); err != nil {
		return err
	}
	if target := tunnel.Target(c.target); target != tunnel.Kube && target != tunnel.Redis {
		return status.Errorf(codes.InvalidArgument, "%s: %q is no target: want kube or redis", tunnel.MetadataTarget, c.target)
	}
	err = e.ring(ctx, c)
	e.metrics.dials.WithLabelValues(c.target, result(err)).Inc()
	if err != nil {
		return err
	}
	return c.wait(ctx, "the component")
}

// one returns the one value of a caller's metadata.
func one(ctx context.Context, key string) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, key)
	if len(values) != 1 {
		return "", status.Errorf(codes.InvalidArgument, "want one value of the metadata %s, got %d", key, len(values))
	}
	return values[0], nil
}

// ring asks the agent to take up the conversation, until it has.
func (e *Exchange) ring(ctx context.Context, c *call) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		status.Errorf(codes.DeadlineExceeded, "it did not take up the conversation within %s", patience))
	defer cancel()
	for {
		l, err := e.find(c.agent)
		if err != nil {
			return err
		}
		again, err := e.ringOnce(ctx, l, c)
		if err != nil || !again {
			return err
		}
	}
}

// ringOnce asks an agent by one Listen call. If that ends before the agent could answer it says to look for another.
func (e *Exchange) ringOnce(ctx context.Context, l *listener, c *call) (again bool, err error) {
	id := rand.Text()
	e.mu.Lock()
	e.calls[id] = c
	e.mu.Unlock()
	select {
	case l.dials <- &tunnelv1.Dial{Id: id, Target: c.target}:
	case <-l.ended:
	case <-ctx.Done():
	}
	select {
	case <-c.taken:
		return false, nil
	case <-l.ended:
		again = true
	case <-ctx.Done():
		err = over(ctx)
	}
	if e.forget(id) {
		return again, err
	}
	<-c.taken // the agent was faster
	return false, nil
}

// forget has an id mean nothing any more, and reports whether it meant something.
func (e *Exchange) forget(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.calls[id]
	delete(e.calls, id)
	return ok
}

// Accept lets an agent take up a conversation.
func (e *Exchange) Accept(stream tunnelv1.Tunnel_AcceptServer) error {
	ctx, who, err := e.options.Gate.Agent(stream.Context())
	if err != nil {
		return err
	}
	defer who.End()
	id, err := one(ctx, tunnel.MetadataDial)
	if err != nil {
		return err
	}
	c, err := e.claim(id, string(who.Agent))
	if err != nil {
		return err
	}
	defer e.release(c)
	// The dialer learns that it is put through, before it hears anything.
	if err := c.dialer.SendHeader(metadata.Pairs(tunnel.MetadataDial, "taken")); err != nil {
		c.finish(status.Error(codes.Canceled, "the component is gone"))
	}
	close(c.taken)
	e.carry(c, stream)
	return c.wait(ctx, "the agent")
}

// claim returns the conversation of that id, which is the agent's to take up once. It must be carried then.
func (e *Exchange) claim(id, agent string) (*call, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.calls[id]
	if c == nil || c.agent != agent {
		return nil, status.Error(codes.NotFound, "there is no such conversation any more")
	}
	if isClosed(e.draining) {
		return nil, authn.ErrDraining
	}
	delete(e.calls, id)
	e.open[c] = struct{}{}
	e.pumps.Add(1)
	e.metrics.conversations.WithLabelValues(c.target).Inc()
	return c, nil
}

func (e *Exchange) release(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, c)
	e.metrics.conversations.WithLabelValues(c.target).Dec()
}

// end is one end of a conversation.
type end interface {
	RecvMsg(message any) error
	SendMsg(message any) error
}

// carry passes on what each end says to the other, until both are through or one is lost. It does not wait for that.
func (e *Exchange) carry(c *call, agent tunnelv1.Tunnel_AcceptServer) {
	var ways sync.WaitGroup
	fromAgent, toAgent := e.metrics.way(c.target, "from_agent"), e.metrics.way(c.target, "to_agent")
	ways.Go(func() { c.pass(agent, c.dialer, fromAgent) })
	ways.Go(func() { c.pass(c.dialer, agent, toAgent) })
	go func() {
		defer e.pumps.Done()
		ways.Wait()
		c.finish(nil)
	}()
}

// pass passes on what one end says until it has said all. The conversation is over if either end is lost: the stream of the
// other ends then too, and with it the other way.
func (c *call) pass(from, to end, bytes interface{ Add(n float64) }) {
	for {
		var frame raw
		err := from.RecvMsg(&frame)
		switch {
		case errors.Is(err, io.EOF):
			return
		case err == nil && frame.data.Len() > tunnel.MaxFrame:
			frame.data.Free()
			c.finish(status.Errorf(codes.InvalidArgument, "a frame of more than %d bytes was sent", tunnel.MaxFrame))
			return
		case err == nil:
			bytes.Add(float64(frame.data.Len()))
			err = to.SendMsg(&frame) // which gives it away
		}
		if err != nil {
			c.finish(status.Error(codes.Unavailable, "the other end was lost"))
			return
		}
	}
}

// wait waits, for one end, until the conversation is over, and returns the status for that end.
func (c *call) wait(ctx context.Context, who string) error {
	select {
	case <-c.done:
		return c.cause
	case <-ctx.Done():
		err := over(ctx)
		c.finish(status.Errorf(codes.Unavailable, "%s is gone: %s", who, status.Convert(err).Message()))
		return err
	}
}
