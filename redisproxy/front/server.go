// Package front serves clients: it reads their commands, has each answered by the hub's Redis or by an agent, and hands back
// the replies in the order of the commands.
//
// A client's commands go to Redis in one of three ways. While it is the only one that waits for Redis, they go over
// a connection of its own, which its goroutine writes to and reads from by itself: there is nobody to hand anything to.
// While several wait, they go together over a connection that all share that are the same to Redis, as long as they leave
// nothing behind on it. And once a client may be told things unasked, because it subscribed, what Redis says on its own
// connection is read by a goroutine of its own. The client's goroutine waits until all that it sent one way is answered
// before it goes another, and before it answers a command itself: so replies and effects stay in order.
//
// The loop is not that of redcon, whose server puts no bound on what it keeps of a client, and copies each command. Its
// parsing of lines, its writing of replies and its patterns are.
package front

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

// Limits are what a client may cause to be kept. Zero means the default.
type Limits struct {
	Clients int // at once; 10000
	Args    int // of one command; 1 Mi, like Redis
	Bulk    int // bytes of one argument; 128 MiB
	Large   int // bytes of all clients' commands that are larger than most; 256 MiB
	Backlog int // bytes that a client has not read yet; 64 MiB
}

func (l Limits) complete() Limits {
	for _, d := range []struct {
		value    *int
		fallback int
	}{{&l.Clients, 10_000}, {&l.Args, 1 << 20}, {&l.Bulk, 128 << 20}, {&l.Large, 256 << 20}, {&l.Backlog, 64 << 20}} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	return l
}

// Options configure a Server.
type Options struct {
	// Upstream is the hub's Redis.
	Upstream upstream.Options
	// Space is the keys of the hub's Argo CD.
	Space keys.Space
	// Spokes answer for the keys that belong to agents.
	Spokes *spokes.Spokes
	Limits Limits
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Server serves clients.
type Server struct {
	options  Options
	commands commands
	limits   resp.Limits
	metrics  metrics
	pool     *upstream.Pool
	buffers  sync.Pool               // of *[]byte, for replies on their way
	latest   atomic.Pointer[session] // who had something to ask last
	large    atomic.Int64            // bytes of commands that are larger than most
	down     atomic.Bool             // the hub's Redis could not be reached

	clients sync.WaitGroup
	drains  sync.WaitGroup // that write what clients did not take at once
	mu      sync.Mutex
	open    map[net.Conn]struct{} // Guarded by mu
	closed  bool                  // Guarded by mu
}

// New returns a server.
func New(o Options) *Server {
	o.Limits = o.Limits.complete()
	s := &Server{
		options: o, commands: newCommands(), metrics: newMetrics(o.Registerer), pool: upstream.NewPool(o.Upstream),
		limits: resp.Limits{Args: o.Limits.Args, Bulk: o.Limits.Bulk, Inline: 64 << 10}, open: make(map[net.Conn]struct{}),
	}
	s.buffers.New = func() any {
		b := make([]byte, replyBuffer)
		return &b
	}
	return s
}

// Serve serves those who connect to the listener until the context ends, which is no error, and returns when all clients
// are gone. The listener is closed then.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.drains.Wait()
	defer s.pool.Close()
	defer s.clients.Wait()
	defer s.closeAll()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			s.admit(ctx, conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // too many open files, a client that was gone already: the next one may do better
			s.options.Logger.Warn("A client could not be accepted", "reason", err.Error())
			rest(ctx)
		}
	}
}

// rest waits a little, or until the context ends.
func rest(ctx context.Context) {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// admit begins to serve a client, if there are not too many.
func (s *Server) admit(ctx context.Context, conn net.Conn) {
	s.mu.Lock()
	full := len(s.open) >= s.options.Limits.Clients
	if !full && !s.closed {
		s.open[conn] = struct{}{}
	}
	refused := full || s.closed
	s.mu.Unlock()
	if refused {
		_ = conn.Close()
		s.metrics.refused.Inc()
		return
	}
	s.metrics.clients.Inc()
	s.clients.Go(func() {
		newSession(s, conn).run(ctx)
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
		s.metrics.clients.Dec()
	})
}

// closeAll ends what clients wait for.
func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.open {
		_ = conn.Close()
	}
}

// reached notes whether the hub's Redis can be reached, and tells people when that changes.
func (s *Server) reached(err error) {
	if was := s.down.Swap(err != nil); was == (err != nil) {
		return
	}
	if err != nil {
		s.options.Logger.Error("The hub's Redis cannot be reached: see --redis-address", "reason", err.Error())
	} else {
		s.options.Logger.Info("The hub's Redis can be reached again")
	}
}
