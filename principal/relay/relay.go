// Package relay puts the hub's components through to agents, like a telephone exchange: an agent listens, a component
// dials, and what the two say to each other passes through. Each conversation is a pair of gRPC streams, whose ends mind how
// much is under way; the exchange itself buffers nothing.
package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/authn"
)

// patience is how long an agent may take to take up a conversation.
const patience = 10 * time.Second

// Options configure an Exchange.
type Options struct {
	// Gate admits agents and components. Its Run must run.
	Gate *authn.Gate
	// Directory is what components watch. The exchange records in it who is connected.
	Directory *Directory
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
}

// Exchange implements the gRPC services Tunnel and Relay.
type Exchange struct {
	tunnelv1.UnimplementedTunnelServer
	tunnelv1.UnimplementedRelayServer

	options Options
	metrics metrics
	pumps   sync.WaitGroup // what carries conversations

	draining chan struct{} // closed when Run ends, with mu held

	mu        sync.Mutex
	listeners map[string]*listener // by agent
	calls     map[string]*call     // that wait for their agent, by their ids
	open      map[*call]struct{}   // that are being carried
}

// New returns an exchange.
func New(o Options) *Exchange {
	return &Exchange{
		options: o, metrics: newMetrics(o.Registerer), draining: make(chan struct{}),
		listeners: make(map[string]*listener), calls: make(map[string]*call), open: make(map[*call]struct{}),
	}
}

// Run serves until the context ends, and returns when all conversations are over. Agents are told to connect again.
func (e *Exchange) Run(ctx context.Context) {
	<-ctx.Done()
	e.mu.Lock()
	close(e.draining)
	for _, l := range e.listeners {
		l.end(authn.ErrDraining)
	}
	for c := range e.open {
		c.finish(authn.ErrDraining)
	}
	e.mu.Unlock()
	e.pumps.Wait()
}

// listener is an agent's Listen call.
type listener struct {
	agent string
	dials chan *tunnelv1.Dial
	ended chan struct{} // closed by end
	cause error         // why, once it has ended
	once  sync.Once
}

func (l *listener) end(cause error) {
	l.once.Do(func() {
		l.cause = cause
		close(l.ended)
	})
}

// Listen serves an agent.
func (e *Exchange) Listen(request *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	ctx, who, err := e.options.Gate.Agent(stream.Context())
	if err != nil {
		return err
	}
	defer who.End()
	l := &listener{agent: string(who.Agent), dials: make(chan *tunnelv1.Dial), ended: make(chan struct{})}
	if err := e.enter(l, request.GetBuild()); err != nil {
		return err
	}
	defer e.leave(l)
	for {
		select {
		case d := <-l.dials:
			if err := stream.Send(d); err != nil {
				return err
			}
		case <-l.ended:
			return l.cause
		case <-ctx.Done():
			return over(ctx)
		}
	}
}

// enter has an agent be reached by l, and by no older one.
func (e *Exchange) enter(l *listener, build string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if isClosed(e.draining) {
		return authn.ErrDraining
	}
	if older := e.listeners[l.agent]; older != nil {
		older.end(authn.ErrSuperseded)
	}
	e.listeners[l.agent] = l
	e.options.Directory.connected(l.agent, build)
	return nil
}

func (e *Exchange) leave(l *listener) {
	e.mu.Lock()
	if e.listeners[l.agent] == l {
		delete(e.listeners, l.agent)
		e.options.Directory.disconnected(l.agent)
	}
	e.mu.Unlock()
	l.end(errors.New("the agent was disconnected")) // whoever still waits for it looks for another, and does not find this one
}

// find returns how to reach an agent.
func (e *Exchange) find(agent string) (*listener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if isClosed(e.draining) {
		return nil, authn.ErrDraining
	}
	if l := e.listeners[agent]; l != nil {
		return l, nil
	}
	return nil, e.options.Directory.absence(agent)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// over returns the status of a stream whose context has ended.
func over(ctx context.Context) error { return authn.Status(context.Cause(ctx)) }
