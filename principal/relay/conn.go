package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// tunnelConn is a tunnel connection that a component dials or has.
type tunnelConn struct {
	agent    string
	target   string
	dialer   dialerEnd
	accepted chan struct{} // closed when the agent has accepted it
	closed   chan struct{} // closed by close
	cause    error         // why it is closed, nil if both ends have finished. Set once, before closed is closed
	once     sync.Once
}

// dialerEnd is the end of who dials.
type dialerEnd interface {
	end
	SendHeader(headers metadata.MD) error
}

// close closes the connection for both ends.
func (c *tunnelConn) close(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.closed)
	})
}

// Dial connects a component to a target of an agent.
func (r *Relay) Dial(stream tunnelv1.Relay_DialServer) error {
	defer r.call()()
	ctx, grant, err := r.options.Authn.Component(stream.Context())
	if err != nil {
		return err
	}
	defer grant.End()
	c := &tunnelConn{dialer: stream, accepted: make(chan struct{}), closed: make(chan struct{})}
	if c.agent, err = metadataValue(ctx, tunnel.MetadataAgent); err != nil {
		return err
	}
	if c.target, err = metadataValue(ctx, tunnel.MetadataTarget); err != nil {
		return err
	}
	if target := tunnel.Target(c.target); target != tunnel.Kube && target != tunnel.Redis {
		return status.Errorf(codes.InvalidArgument, "%s: %q is no target: want kube or redis", tunnel.MetadataTarget, c.target)
	}
	forwarded, err := r.isForwarded(ctx, grant)
	if err != nil {
		return err
	}
	if !forwarded { // else the principal that forwards it has seen to that
		if err := r.options.Authn.MayDial(grant, c.target); err != nil {
			return err
		}
	}
	peer, err := r.dialAgent(ctx, c, forwarded)
	r.metrics.dials.WithLabelValues(c.target, dialResult(err)).Inc()
	switch {
	case err != nil:
		return err
	case peer != nil:
		defer peer.cancel()
		return r.carry(ctx, c, peer)
	default:
		return c.waitClosed(ctx, "the component")
	}
}

// metadataValue returns the one value of a caller's metadata.
func metadataValue(ctx context.Context, key string) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, key)
	if len(values) != 1 {
		return "", status.Errorf(codes.InvalidArgument, "want one value of the metadata %s, got %d", key, len(values))
	}
	return values[0], nil
}

// returnTimeout is how long a dial waits for an agent that left as long ago at most: it is about to come back, perhaps to another principal.
const returnTimeout = 3 * time.Second

// dialAgent has the agent accept the connection, here or at another principal, whose stream it returns then.
func (r *Relay) dialAgent(ctx context.Context, c *tunnelConn, forwarded bool) (*peerStream, error) {
	patience := time.NewTimer(returnTimeout)
	defer patience.Stop()
	for {
		moved := r.moved.Changed()
		peer, err := r.dialOnce(ctx, c, forwarded)
		if err == nil || !r.mayReturn(c.agent, err) {
			return peer, err
		}
		if forwarded && r.elsewhere(c.agent) != nil {
			return nil, err // it came here too late: the principal that forwarded it looks again
		}
		select {
		case <-moved:
		case <-patience.C:
			return nil, err
		case <-r.draining:
			return nil, goaway.Err
		case <-ctx.Done():
			return nil, contextStatus(ctx)
		}
	}
}

// mayReturn reports whether an agent that could not be dialled has left a moment ago, or has just moved to another principal.
func (r *Relay) mayReturn(agent string, err error) bool {
	code := status.Code(err)
	return (code == codes.FailedPrecondition || code == codes.Unavailable) && !isClosed(r.draining) && r.options.Directory.leftLately(agent)
}

// dialOnce asks the agent to accept the connection, until it has, or is connected nowhere.
func (r *Relay) dialOnce(ctx context.Context, c *tunnelConn, forwarded bool) (*peerStream, error) {
	timed, cancel := context.WithTimeoutCause(ctx, dialTimeout,
		status.Errorf(codes.DeadlineExceeded, "it did not accept the connection within %s", dialTimeout))
	defer cancel()
	for {
		if conn := r.elsewhere(c.agent); conn != nil && !forwarded {
			return r.forward(ctx, c, conn)
		}
		s, err := r.streamOf(c.agent)
		if err != nil {
			return nil, err
		}
		again, err := r.dialOver(timed, s, c)
		if err != nil || !again {
			return nil, err
		}
	}
}

// dialOver asks an agent over one Listen stream. If that ends before the agent could answer, again is true: there may be
// another stream.
func (r *Relay) dialOver(ctx context.Context, s *agentStream, c *tunnelConn) (again bool, err error) {
	id := r.options.Roster.Self().ID + dialSeparator + rand.Text()
	r.mu.Lock()
	r.pending[id] = c
	r.mu.Unlock()
	select {
	case s.dials <- &tunnelv1.DialRequest{Id: id, Target: c.target}:
	case <-s.ended:
	case <-ctx.Done():
	}
	select {
	case <-c.accepted:
		return false, nil
	case <-s.ended:
		again = true
	case <-ctx.Done():
		err = contextStatus(ctx)
	}
	if r.withdraw(id) {
		return again, err
	}
	<-c.accepted // the agent was faster
	return false, nil
}

// withdraw makes a dial's id invalid, and reports whether it was valid.
func (r *Relay) withdraw(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.pending[id]
	delete(r.pending, id)
	return ok
}

// Accept is the agent's end of a connection that a component dialled.
func (r *Relay) Accept(stream tunnelv1.Tunnel_AcceptServer) error {
	defer r.call()()
	ctx, grant, err := r.options.Authn.Agent(stream.Context())
	if err != nil {
		return err
	}
	defer grant.End()
	id, err := metadataValue(ctx, tunnel.MetadataDial)
	if err != nil {
		return err
	}
	if conn := r.dialedBy(id); conn != nil {
		return r.forwardAccept(ctx, stream, conn, id, string(grant.Agent))
	}
	return r.acceptDial(ctx, stream, id, string(grant.Agent))
}

// acceptDial is an agent's end of a connection that was dialled here.
func (r *Relay) acceptDial(ctx context.Context, stream end, id, agent string) error {
	c, err := r.claim(id, agent)
	if err != nil {
		return err
	}
	defer r.release(c)
	// The dialer gets its headers before any data.
	if err := c.dialer.SendHeader(metadata.Pairs(tunnel.MetadataDial, "accepted")); err != nil {
		c.close(status.Error(codes.Canceled, "the component is gone"))
	}
	close(c.accepted)
	r.copyFrames(c, stream, c.dialer)
	return c.waitClosed(ctx, "the agent")
}

// claim returns the connection that was dialled with that id, which its agent may accept once. copyFrames must be called
// for it.
func (r *Relay) claim(id, agent string) (*tunnelConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.pending[id]
	if c == nil || c.agent != agent {
		return nil, status.Error(codes.NotFound, "no dial with this id is pending")
	}
	if isClosed(r.draining) {
		return nil, goaway.Err
	}
	delete(r.pending, id)
	r.begin(c)
	return c, nil
}

// begin counts a connection whose frames are going to be copied. r.mu is held.
func (r *Relay) begin(c *tunnelConn) {
	r.open[c] = struct{}{}
	r.copying.Add(1)
	r.metrics.connections.WithLabelValues(c.target).Inc()
}

func (r *Relay) release(c *tunnelConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	r.metrics.connections.WithLabelValues(c.target).Dec()
}

// end is one end of a connection.
type end interface {
	RecvMsg(message any) error
	SendMsg(message any) error
}

// copyFrames copies frames between both ends until both have finished or one is lost. It does not wait for that.
func (r *Relay) copyFrames(c *tunnelConn, agent, dialer end) {
	var directions sync.WaitGroup
	directions.Go(func() { c.copyDirection(agent, dialer, r.metrics.bytes.WithLabelValues(c.target, "from_agent")) })
	directions.Go(func() { c.copyDirection(dialer, agent, r.metrics.bytes.WithLabelValues(c.target, "to_agent")) })
	go func() {
		defer r.copying.Done()
		directions.Wait()
		c.close(nil)
	}()
}

// copyDirection copies what one end sends until it has finished. If either end is lost the connection is closed: that ends
// the other end's stream, and with it the other direction.
func (c *tunnelConn) copyDirection(from, to end, bytes interface{ Add(n float64) }) {
	for {
		var frame rawFrame
		err := from.RecvMsg(&frame)
		switch {
		case errors.Is(err, io.EOF):
			if peer, ok := to.(interface{ CloseSend() error }); ok { // another principal's, which forwards it
				_ = peer.CloseSend() // which fails only if the stream is over
			}
			return
		case err == nil && frame.data.Len() > tunnel.MaxFrame:
			frame.data.Free()
			c.close(status.Errorf(codes.InvalidArgument, "a frame of more than %d bytes was sent", tunnel.MaxFrame))
			return
		case err == nil:
			bytes.Add(float64(frame.data.Len()))
			err = to.SendMsg(&frame) // which frees it
		}
		if err != nil {
			c.close(lost(from, err))
			return
		}
	}
}

// lost returns the status of a connection of which one end failed. Another principal knows why.
func lost(from end, err error) error {
	if _, peer := from.(grpc.ClientStream); peer {
		return authn.Status(err)
	}
	return status.Error(codes.Unavailable, "the other end was lost")
}

// waitClosed waits, for one end, until the connection is closed, and returns the status for that end.
func (c *tunnelConn) waitClosed(ctx context.Context, who string) error {
	select {
	case <-c.closed:
		return c.cause
	case <-ctx.Done():
		err := contextStatus(ctx)
		c.close(status.Errorf(codes.Unavailable, "%s is gone: %s", who, status.Convert(err).Message()))
		return err
	}
}
