// Package relay puts the hub's components through to agents, like a telephone exchange: an agent listens, a component
// dials, and what the two say to each other passes through. Each conversation is a pair of gRPC streams, whose ends mind how
// much is under way; the exchange itself buffers nothing.
package relay

import (
	"context"
	"errors"
	"iter"
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
	// Directory says which of the hub's applications are whose.
	Directory Directory
	// Known is closed once all is known that was there before the start. Until then components are told nothing.
	Known <-chan struct{}
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
}

// Directory says which of the hub's applications are whose. Applications are called by their instances: what Argo CD calls
// them in Redis. Its methods must not call the Exchange.
type Directory interface {
	// Namespace returns the namespace on the hub whose applications are all an agent's, empty if there is none.
	Namespace(agent string) string
	// Instances yields the applications that are meant for an agent.
	Instances(agent string) iter.Seq[string]
	// Assigned returns whose an application is, and what it is called on the spoke. The agent is empty if it is no agent's,
	// or if its namespace alone tells.
	Assigned(instance string) (agent, spokeInstance string)
}

// Exchange implements the gRPC services Tunnel and Relay.
type Exchange struct {
	tunnelv1.UnimplementedTunnelServer
	tunnelv1.UnimplementedRelayServer

	options Options
	metrics metrics
	board   *board
	pumps   sync.WaitGroup // what carries conversations

	mu        sync.Mutex
	draining  bool
	listeners map[string]*listener // by agent
	calls     map[string]*call     // that wait for their agent, by their ids
	open      map[*call]struct{}   // that are being carried
}

// New returns an exchange.
func New(o Options) *Exchange {
	return &Exchange{
		options: o, metrics: newMetrics(o.Registerer), board: newBoard(o.Directory),
		listeners: make(map[string]*listener), calls: make(map[string]*call), open: make(map[*call]struct{}),
	}
}

// Run serves until the context ends, and returns when all conversations are over. Agents are told to connect again.
func (e *Exchange) Run(ctx context.Context) {
	<-ctx.Done()
	e.mu.Lock()
	e.draining = true
	for _, l := range e.listeners {
		l.end(authn.ErrDraining)
	}
	for c := range e.open {
		c.finish(authn.ErrDraining)
	}
	e.mu.Unlock()
	e.board.close()
	e.pumps.Wait()
}

// Cluster says that the hub knows an agent's cluster by that address. Whoever is known to the hub is no stranger, though it
// may never have connected. Both must be UTF-8: components are told of all agents at once, in text.
func (e *Exchange) Cluster(agent, server string) { e.board.cluster(agent, server) }

// NoCluster says that the hub knows no cluster of an agent any more.
func (e *Exchange) NoCluster(agent string) { e.board.noCluster(agent) }

// Reassigned says that the directory may tell otherwise than before whose an application is. agents are those that it was
// and is meant for.
func (e *Exchange) Reassigned(instance string, agents ...string) {
	e.board.reassigned(instance, agents...)
}

// Rehoused says that the directory tells another namespace of an agent than before.
func (e *Exchange) Rehoused(agent string) { e.board.rehoused(agent) }

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
	if e.draining {
		return authn.ErrDraining
	}
	if older := e.listeners[l.agent]; older != nil {
		older.end(authn.ErrSuperseded)
	}
	e.listeners[l.agent] = l
	e.board.connected(l.agent, build)
	return nil
}

func (e *Exchange) leave(l *listener) {
	e.mu.Lock()
	if e.listeners[l.agent] == l {
		delete(e.listeners, l.agent)
		e.board.disconnected(l.agent)
	}
	e.mu.Unlock()
	l.end(errors.New("the agent was disconnected")) // whoever still waits for it looks for another, and does not find this one
}

// find returns how to reach an agent.
func (e *Exchange) find(agent string) (*listener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining {
		return nil, authn.ErrDraining
	}
	if l := e.listeners[agent]; l != nil {
		return l, nil
	}
	return nil, e.board.absence(agent)
}

// over returns the status of a stream whose context has ended.
func over(ctx context.Context) error { return authn.Status(context.Cause(ctx)) }
