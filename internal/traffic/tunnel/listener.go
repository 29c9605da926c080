package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// patience is how long a conversation may take to be taken up on the spoke. The hub has given it up by then.
const patience = 10 * time.Second

// maxConversations is how many there may be at a time. A principal lets an agent have no more either.
const maxConversations = 1000

// Listener is a net.Listener of what the hub dials on a spoke.
type Listener struct {
	target Target
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewListener returns a listener for a target.
func NewListener(target Target) *Listener {
	l := &Listener{target: target, conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Accept waits for the next conversation.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: network, Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close ends Accept. Conversations go on.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr tells people which target it is.
func (l *Listener) Addr() net.Addr { return address(l.target) }

// hand gives a conversation to Accept, and reports whether it took it.
func (l *Listener) hand(ctx context.Context, c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
	case <-ctx.Done():
	}
	return false
}

// Server takes up what the hub dials.
type Server struct {
	listeners map[Target]*Listener
	logger    *slog.Logger
}

// NewServer returns a server that hands conversations to these listeners.
func NewServer(logger *slog.Logger, listeners ...*Listener) *Server {
	s := &Server{listeners: make(map[Target]*Listener), logger: logger}
	for _, l := range listeners {
		s.listeners[l.target] = l
	}
	return s
}

// Serve takes up what the hub dials over a connection to the principal, until listening ends or the principal ends the call,
// with whose status it returns. All conversations over the connection are over then: those that were taken up go on until
// they or ctx end, or the principal ends the call. listening ends with ctx at the latest.
func (s *Server) Serve(ctx, listening context.Context, principal grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var conns sync.WaitGroup
	defer conns.Wait()
	client := tunnelv1.NewTunnelClient(principal)
	calls, err := client.Listen(listening, &tunnelv1.ListenRequest{Build: version.Version()}, grpc.MaxCallRecvMsgSize(MaxFrame))
	if err != nil {
		return err
	}
	places := make(chan struct{}, maxConversations)
	for {
		dial, err := calls.Recv()
		if err != nil {
			if listening.Err() == nil {
				cancel()
			}
			return err
		}
		select {
		case places <- struct{}{}:
			conns.Go(func() {
				defer func() { <-places }()
				s.take(ctx, client, dial)
			})
		default: // the hub gives up soon
			s.logger.Debug("Did not take up a conversation: there are too many", "limit", maxConversations)
		}
	}
}

// take takes up one conversation and carries it to its end.
func (s *Server) take(ctx context.Context, client tunnelv1.TunnelClient, dial *tunnelv1.Dial) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(patience, cancel)
	defer late.Stop()
	target := Target(dial.GetTarget())
	stream, err := client.Accept(metadata.AppendToOutgoingContext(ctx, MetadataDial, dial.GetId()), callOptions()...)
	if err != nil {
		s.logger.Debug("Did not take up a conversation", "target", string(target), "error", err)
		return
	}
	listener, ok := s.listeners[target]
	if !ok {
		refuse(stream, "the agent serves no "+string(target))
		return
	}
	c := newConn(stream, cancel, address(target), address("hub"))
	if !listener.hand(ctx, c) {
		refuse(stream, "the agent is busy or shutting down")
		return
	}
	if !late.Stop() {
		cancel() // c says so to whoever has it
	}
	c.run()
}

// refuse ends a conversation that was not taken up.
func refuse(s stream, reason string) {
	if errors.Join(s.SendMsg(&frame{end: tunnelv1.End_END_ABORT, reason: reason}), s.CloseSend()) == nil {
		_ = drain(s) // until the hub has it
	}
}

// drain returns how a stream ends.
func drain(s stream) error {
	for {
		var f frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		f.data.Free()
	}
}
