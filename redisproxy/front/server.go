// Package front serves clients: it passes their commands on to the hub's Redis, has an agent answer those that read the
// agent's keys, and hands back the replies in the order of the commands.
//
// Each client has a connection to the hub's Redis of its own, over which all of its commands go, also those about agents'
// keys: who the client is, what it may do, whether it is in a transaction and what it is subscribed to is what Redis says.
// One goroutine reads commands, and notes what is to be done with the reply; one reads replies, and puts an agent's answer
// in the place of Redis' if Redis did not refuse the command; and one writes to the client. What waits to be written is
// bounded: for a client that does not read Redis has to wait, and it is disconnected if too much from agents is pending.
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
	"golang.org/x/time/rate"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

// Limits are what a client may cause to be kept. Zero means the default.
type Limits struct {
	Clients   int // at once; 10000
	Strangers int // clients that have not authenticated, at once and besides those; 256
	Args      int // of one command; 1 Mi, like Redis
	Bulk      int // bytes of one argument; 128 MiB
	Large     int // bytes of all clients' commands that are larger than most; 256 MiB
	Backlog   int // bytes that a client has not read yet; 64 MiB
}

func (l Limits) complete() Limits {
	for _, d := range []struct {
		value    *int
		fallback int
	}{
		{&l.Clients, 10_000}, {&l.Strangers, 256}, {&l.Args, 1 << 20}, {&l.Bulk, 128 << 20}, {&l.Large, 256 << 20}, {&l.Backlog, 64 << 20},
	} {
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
	// DrainTimeout is how long Redis may take for the next reply once the client has said that it sends no more, and how long
	// the client may take to read each piece of what is left. Zero means 30 seconds: the kernel takes more only when megabytes
	// of what it has are read, for which a client far away needs some seconds.
	DrainTimeout time.Duration
	// AuthTimeout is how long a client may take until Redis has authenticated it, after it has connected or sent RESET. Zero means 10
	// seconds.
	AuthTimeout time.Duration
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Server serves clients.
type Server struct {
	options  Options
	commands map[string]commandInfo // by name, in lower case
	limits   resp.Limits
	metrics  metrics
	large    atomic.Int64 // bytes of commands that are larger than most
	down     atomic.Bool  // the hub's Redis could not be reached
	door     door
	warnings rate.Sometimes // about clients that do not authenticate

	clients sync.WaitGroup
	mu      sync.Mutex
	open    map[net.Conn]struct{}    // Guarded by mu
	waiting connlimit.Queue[*client] // those in open that have not authenticated. Guarded by mu
	closed  bool                     // Guarded by mu
}

// New returns a server.
func New(o Options) *Server {
	o.Limits = o.Limits.complete()
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 30 * time.Second
	}
	if o.AuthTimeout == 0 {
		o.AuthTimeout = 10 * time.Second
	}
	return &Server{
		options: o, commands: newCommands(), metrics: newMetrics(o.Registerer),
		limits: resp.Limits{Args: o.Limits.Args, Bulk: o.Limits.Bulk, Inline: 64 << 10}, open: make(map[net.Conn]struct{}),
		warnings: rate.Sometimes{Interval: time.Minute},
	}
}

// Serve serves those who connect to the listener until the context ends, which is no error, and returns when all clients
// are gone. The listener is closed then.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
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

// admit begins to serve a client, if there are not too many. Those who have authenticated keep their places. One who has not makes room
// for the next when there are too many of them, of the address with most of them, so that nobody is kept out by connections that say nothing.
func (s *Server) admit(ctx context.Context, conn net.Conn) {
	s.mu.Lock()
	client := newClient(s, conn)
	refused := s.closed || len(s.open)-s.waiting.Len() >= s.options.Limits.Clients
	if !refused {
		if s.waiting.Len() >= s.options.Limits.Strangers {
			s.makeRoom()
		}
		s.open[conn] = struct{}{}
		client.place = s.waiting.Join(client, conn.RemoteAddr())
	}
	s.mu.Unlock()
	if refused {
		_ = conn.Close()
		s.metrics.refused.Inc()
		return
	}
	s.metrics.clients.Inc()
	s.clients.Go(func() {
		client.run(ctx)
		s.mu.Lock()
		delete(s.open, conn)
		s.waiting.Leave(client.place)
		s.mu.Unlock()
		s.metrics.clients.Dec()
	})
}

// makeRoom disconnects a client that Redis has not authenticated. It is called with mu held.
func (s *Server) makeRoom() {
	if dropped, ok := s.waiting.Drop(); ok {
		delete(s.open, dropped.conn)
		_ = dropped.conn.Close()
		s.reportStranger("too many others have not authenticated", dropped.conn)
	}
}

// keepPlace gives a client that Redis has authenticated one of the places for those, or disconnects it when there is none.
func (s *Server) keepPlace(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Leave(c.place)
	if len(s.open)-s.waiting.Len() > s.options.Limits.Clients {
		_ = c.conn.Close()
		s.metrics.refused.Inc()
	}
}

// reportStranger counts a client that is disconnected before it has authenticated, and logs some.
func (s *Server) reportStranger(why string, conn net.Conn) {
	s.metrics.unauthenticated.Inc()
	s.warnings.Do(func() {
		s.options.Logger.Warn("Disconnected a client that had not authenticated; more within a minute are only counted",
			"reason", why, "address", conn.RemoteAddr().String())
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

// dialUpstream connects to the hub's Redis.
func (s *Server) dialUpstream(ctx context.Context) (net.Conn, error) {
	hub, err := s.options.Upstream.Dial(ctx)
	if ctx.Err() == nil {
		s.reportUpstream(err)
	}
	return hub, err
}

// reportUpstream logs when the hub's Redis cannot be reached any more, and when it can again.
func (s *Server) reportUpstream(err error) {
	if was := s.down.Swap(err != nil); was == (err != nil) {
		return
	}
	if err != nil {
		s.options.Logger.Error("Connection to the hub's Redis failed; clients are disconnected", "address", s.options.Upstream.Address,
			"setting", "--redis-address", "err", err)
	} else {
		s.options.Logger.Info("Connected to the hub's Redis again", "address", s.options.Upstream.Address)
	}
}
