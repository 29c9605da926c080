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

// acceptTimeout is how long a dial may wait for a listener on the spoke. The hub has given up by then.
const acceptTimeout = 10 * time.Second

// maxConns is how many connections there may be at a time, over all connections to principals together: those over older ones last as long
// as the hub pleases. A principal lets an agent have no more either.
const maxConns = 1000

// Bounds of a DialRequest's texts, in bytes: an id goes back to the principal as metadata, a target into a reason and the log.
const (
	maxID     = 128
	maxTarget = 64
)

// Listener is a net.Listener for what the hub dials on a spoke.
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

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: network, Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close ends Accept. Connections stay open.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr returns the name of the target.
func (l *Listener) Addr() net.Addr { return address(l.target) }

// deliver gives a connection to Accept, and reports whether it took it.
func (l *Listener) deliver(ctx context.Context, c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
	case <-ctx.Done():
	}
	return false
}

// Server accepts what the hub dials.
type Server struct {
	listeners map[Target]*Listener
	slots     chan struct{} // is full when there are as many connections as there may be
	logger    *slog.Logger
}

// NewServer returns a server that delivers connections to these listeners.
func NewServer(logger *slog.Logger, listeners ...*Listener) *Server {
	s := &Server{listeners: make(map[Target]*Listener), slots: make(chan struct{}, maxConns), logger: logger}
	for _, l := range listeners {
		s.listeners[l.target] = l
	}
	return s
}

// Serve accepts what the hub dials over a connection to the principal, until listening ends or the principal ends the Listen
// call, whose status it returns. Tunnel connections stay open after that until they or ctx end; conns counts them. listening must end with
// ctx at the latest.
func (s *Server) Serve(ctx, listening context.Context, principal grpc.ClientConnInterface, conns *sync.WaitGroup) error {
	client := tunnelv1.NewTunnelClient(principal)
	dials, err := client.Listen(listening, &tunnelv1.ListenRequest{Build: version.Version()}, grpc.MaxCallRecvMsgSize(MaxFrame))
	if err != nil {
		return err
	}
	over := make(chan struct{})
	defer close(over)
	warn := sync.OnceFunc(func() {
		s.logger.Warn("Tunnel dials rejected: the principal sends an id or a target that is too long; check its version", "id_limit", maxID, "target_limit", maxTarget)
	})
	for {
		dial, err := dials.Recv()
		if err != nil {
			return err
		}
		if len(dial.GetId()) > maxID || len(dial.GetTarget()) > maxTarget {
			warn() // and the hub's dial times out
			continue
		}
		select {
		case s.slots <- struct{}{}:
			conns.Go(func() {
				defer func() { <-s.slots }()
				s.accept(ctx, client, dial, over)
			})
		default: // the hub's dial times out
			s.logger.Debug("Tunnel dial rejected: too many connections are open", "limit", maxConns)
		}
	}
}

// accept accepts one connection and carries it until it is closed. retired is the connection's.
func (s *Server) accept(ctx context.Context, client tunnelv1.TunnelClient, dial *tunnelv1.DialRequest, retired <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(acceptTimeout, cancel)
	defer late.Stop()
	target := Target(dial.GetTarget())
	stream, err := client.Accept(metadata.AppendToOutgoingContext(ctx, MetadataDial, dial.GetId()), callOptions()...)
	if err != nil {
		s.logger.Debug("Tunnel dial rejected", "target", string(target), "error", err)
		return
	}
	listener, ok := s.listeners[target]
	if !ok {
		abort(stream, "the agent serves no "+string(target))
		return
	}
	c := newConn(stream, cancel, address(target), address("hub"))
	c.retired = retired
	if !listener.deliver(ctx, c) {
		abort(stream, "the agent is busy or shutting down")
		return
	}
	if !late.Stop() {
		cancel() // whoever has c gets an error from it
	}
	c.run()
}

// abort ends a connection that no listener took.
func abort(s stream, reason string) {
	if errors.Join(s.SendMsg(&frame{end: tunnelv1.End_END_ABORT, reason: reason}), s.CloseSend()) == nil {
		_ = drain(s) // until the hub has the reason
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
