// Package relay carries tunnel connections between the hub's components and agents: an agent listens, a component dials, and
// the relay copies frames between their two gRPC streams. The ends limit how much is in flight, so the relay buffers nothing.
package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

// dialTimeout is how long an agent may take to accept a connection.
const dialTimeout = 10 * time.Second

// Options configure a Relay.
type Options struct {
	// Authn authenticates agents and components. Its Run must run.
	Authn *authn.Authenticator
	// Directory is what components watch.
	Directory *Directory
	// Roster takes which agents listen here, and says which listen at other principals.
	Roster *peers.Roster
	// Peer returns the connection to another principal, by its ID, nil if there is none. If it is not set there are no others.
	Peer func(principal string) grpc.ClientConnInterface
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
}

// Relay implements the gRPC services Tunnel and Relay.
type Relay struct {
	tunnelv1.UnimplementedTunnelServer
	tunnelv1.UnimplementedRelayServer

	options Options
	metrics metrics
	copying sync.WaitGroup // connections whose frames are being copied

	draining chan struct{}    // closed when Run ends, with mu held
	moved    signal.Broadcast // an agent listens, or does not any more, at this principal or at another
	left     signal.Broadcast // an agent listens here no more, or a connection is over

	mu      sync.Mutex
	agents  map[string]*agentStream  // by agent. Guarded by mu
	pending map[string]*tunnelConn   // that no agent has accepted yet, by the ids of their dials. Guarded by mu
	open    map[*tunnelConn]struct{} // that were accepted. Guarded by mu
	calls   int                      // that a connection is or may become: from Dial, and from other principals. Guarded by mu
	listens map[string]*rate.Limiter // how often agents may begin to listen. Guarded by mu
	leaving bool                     // no agent may listen here any more. Guarded by mu
}

// New returns a relay.
func New(o Options) *Relay {
	r := &Relay{
		options: o, metrics: newMetrics(o.Registerer), draining: make(chan struct{}),
		agents: make(map[string]*agentStream), listens: make(map[string]*rate.Limiter), pending: make(map[string]*tunnelConn), open: make(map[*tunnelConn]struct{}),
	}
	o.Roster.Subscribe(func(kind peers.Kind, _ string) {
		if kind == peers.Tunnel {
			r.moved.Give()
		}
	})
	return r
}

// Drain waits until no agent listens here or, so that one that stays keeps nobody else from leaving, until patience ends; calls gone, and
// waits until no connection is open, or until the context ends. All goes on meanwhile. Agents end listening when they do elsewhere.
func (r *Relay) Drain(ctx, patience context.Context, gone func()) {
	r.await(patience, func() bool { return len(r.agents) == 0 })
	r.mu.Lock()
	r.leaving = true
	r.mu.Unlock()
	gone()
	r.await(ctx, func() bool { return r.calls == 0 })
}

// Left returns how many agents listen here, and how many connections are open.
func (r *Relay) Left() (agents, connections int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.agents), len(r.open)
}

// await waits until something holds, which is asked with r.mu held, or the context ends.
func (r *Relay) await(ctx context.Context, holds func() bool) {
	for ctx.Err() == nil {
		left := r.left.Changed()
		r.mu.Lock()
		over := holds()
		r.mu.Unlock()
		if over {
			return
		}
		select {
		case <-left:
		case <-ctx.Done():
		}
	}
}

// call counts a call that a connection is or may become. The function that it returns says that the call is over.
func (r *Relay) call() (over func()) {
	r.mu.Lock()
	r.calls++
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		r.calls--
		r.mu.Unlock()
		r.left.Give()
	}
}

// Run serves until the context ends, and returns when all connections are closed. It tells agents and components to connect
// again.
func (r *Relay) Run(ctx context.Context) {
	<-ctx.Done()
	r.mu.Lock()
	close(r.draining)
	for _, s := range r.agents {
		s.end(goaway.Err)
	}
	for c := range r.open {
		c.close(goaway.Err)
	}
	r.mu.Unlock()
	r.copying.Wait()
}

// agentStream is an agent's Listen stream.
type agentStream struct {
	agent string
	lease *peers.Lease
	dials chan *tunnelv1.DialRequest // to be sent
	ended chan struct{}              // closed by end
	cause error                      // why, once it has ended
	once  sync.Once
}

func (s *agentStream) end(cause error) {
	s.once.Do(func() {
		s.cause = cause
		close(s.ended)
	})
}

// Listen sends an agent what components dial.
func (r *Relay) Listen(request *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	ctx, grant, err := r.options.Authn.Agent(stream.Context())
	if err != nil {
		return err
	}
	defer grant.End()
	if err := r.admitListen(string(grant.Agent)); err != nil {
		r.options.Authn.Refused(grant, err)
		return err
	}
	s := &agentStream{agent: string(grant.Agent), dials: make(chan *tunnelv1.DialRequest), ended: make(chan struct{})}
	if err := r.register(s, request.GetBuild()); err != nil {
		return err
	}
	defer r.unregister(s)
	for {
		select {
		case dial := <-s.dials:
			if err := stream.Send(dial); err != nil {
				return err
			}
		case <-s.ended:
			return s.cause
		case <-ctx.Done():
			return contextStatus(ctx)
		}
	}
}

// How often an agent may begin to listen: as often as a session. Each time all principals and components are told.
const (
	listensPerSecond = 1
	listensBurst     = 60
	maxListeners     = 10_000 // of which it is remembered how often they began
)

// admitListen returns why an agent is refused that begins to listen too often, as a status.
func (r *Relay) admitListen(agent string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listens[agent] == nil {
		if len(r.listens) >= maxListeners {
			clear(r.listens)
		}
		r.listens[agent] = rate.NewLimiter(listensPerSecond, listensBurst)
	}
	if r.listens[agent].Allow() {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "the agent begins to listen too often: it may do so %d times, and once a second after that; "+
		"see its log for why its connections end", listensBurst)
}

// register makes s the stream over which an agent is dialled, and ends an older one.
func (r *Relay) register(s *agentStream, build string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving || isClosed(r.draining) {
		return goaway.Err
	}
	if older := r.agents[s.agent]; older != nil {
		older.end(authn.ErrSuperseded)
	}
	r.agents[s.agent] = s
	s.lease = r.options.Roster.Hold(peers.Tunnel, s.agent, peers.About{Build: build}, s.end)
	return nil
}

func (r *Relay) unregister(s *agentStream) {
	r.mu.Lock()
	if r.agents[s.agent] == s {
		delete(r.agents, s.agent)
	}
	r.mu.Unlock()
	r.left.Give()
	s.lease.Release()
	s.end(errors.New("the agent was disconnected")) // dials that wait for it look for another stream, and do not find this one
}

// streamOf returns the stream over which to dial an agent.
func (r *Relay) streamOf(agent string) (*agentStream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isClosed(r.draining) {
		return nil, goaway.Err
	}
	if s := r.agents[agent]; s != nil {
		return s, nil
	}
	return nil, r.options.Directory.absence(agent)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// contextStatus returns the status of a stream whose context has ended.
func contextStatus(ctx context.Context) error { return authn.Status(context.Cause(ctx)) }
