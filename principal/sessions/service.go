// Package sessions serves agents: it decides who may connect, runs one session with each, and hands the hub's changes to
// those agents that they concern.
package sessions

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

// maxWrites is how many writes to the hub may be under way at a time, for all agents together. An API server allows 200 by
// default, from everybody.
const maxWrites = 128

// Options configure a Service.
type Options struct {
	// Authn authenticates agents. Its Run must run.
	Authn *authn.Authenticator
	// Ready waits until sessions may begin, and returns why not if the context ends before that: until all of the hub's objects
	// are known, a resync would delete what is not known yet.
	Ready func(ctx context.Context) error
	// Knows reports whether the hub has heard of an agent, see hub.Hub. Others are refused.
	Knows func(ctx context.Context, agent string) (bool, error)
	// Register, if set, lets an agent that fits register its cluster, and brings up to date what was registered. A status as the error is
	// the agent's fault. It is called for each connection, also of agents that the hub knows.
	Register func(ctx context.Context, agent string, theirs wire.Hello) error
	// Share returns what is shared with an agent of that mode, which is as in its hello.
	Share func(agent, mode string) converge.Options
	// Budget returns a new budget for an agent, which it has whatever its mode and however often it connects.
	Budget func(agent string) *converge.Budget
	// HasCluster reports whether the hub has a cluster Secret of an agent, valid or not: it may be away, and is remembered.
	HasCluster func(agent string) bool
	// Roster takes which agents have sessions here, and ends those that a newer one at another principal supersedes.
	Roster *peers.Roster
	// Forget is called when an agent has neither a session nor a cluster Secret any more, or has a session at another principal.
	Forget func(agent string)
	// Modes are those that agents may have. The first is that of an agent of which the hub does not say so.
	Modes []string
	// Mode returns the one that the hub says an agent has, empty if it says nothing.
	Mode func(agent string) string
	// OtherCluster returns the cluster Secret that has an agent's name for its cluster and is not the agent's, empty if none has.
	OtherCluster func(agent string) string
	// PerSecond is how many sessions may begin in a second, and in a row after a while; 0 for any number.
	PerSecond int
	// Hello returns the principal's.
	Hello func() wire.Hello
	// Drain returns within what time agents are asked to connect to another principal when Run ends; 0 if there is none, and all are asked
	// at once.
	Drain func() time.Duration
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Service implements the gRPC service by which agents connect.
type Service struct {
	syncv1.UnimplementedSyncServer

	options Options
	metrics metrics
	workers *converge.Workers
	streams sync.WaitGroup // connections, and their receivers
	// registrations is the log of those that fail.
	registrations *slog.Logger
	moves         *moves
	turns         *turns
	sometimes     rate.Sometimes // agents are told to come later, for the log

	mu          sync.RWMutex
	serving     bool                     // Run runs. Guarded by mu
	connections map[*connection]struct{} // that are open. Guarded by mu
	streamsOf   map[string]int           // how many of these an agent has. Guarded by mu
	agents      map[string]*agent        // that have a session, or have had one and have a cluster Secret. Guarded by mu
	budgets     map[string]*budget       // by agent, see budgetOf. Guarded by mu
	sweepAt     int                      // how many budgets there may be before those that are not used are forgotten. Guarded by mu
}

// agent is an agent that has connected.
type agent struct {
	peer     *converge.Peer
	mode     string        // that it had then
	turn     chan struct{} // of capacity one: is taken for the length of a session
	newest   *connection   // whose session it is or will be; nil if that has left. Guarded by Service.mu
	sessions int           // that run or wait for their turn. Guarded by Service.mu
}

// New returns a service that refuses agents until Run runs.
func New(o Options) *Service {
	s := &Service{
		options: o, metrics: newMetrics(o.Registerer), workers: converge.NewWorkers(maxWrites), registrations: logging.Limited(o.Logger),
		connections: make(map[*connection]struct{}), streamsOf: make(map[string]int), agents: make(map[string]*agent),
		budgets: make(map[string]*budget), sweepAt: minBudgets, moves: newMoves(),
		turns: newTurns(o.PerSecond), sometimes: rate.Sometimes{Interval: time.Minute},
	}
	o.Roster.Subscribe(func(kind peers.Kind, agent string) {
		if kind == peers.Session && o.Roster.HeldElsewhere(kind, agent) {
			s.moves.add(agent)
		}
	})
	return s
}

// turn is how long after another agent the next one is asked to connect elsewhere, unless there is less time: 200 in a second are no storm.
const turn = 5 * time.Millisecond

// Run serves until the context ends, and returns when all sessions are over. Agents are asked to connect again.
func (s *Service) Run(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	working.Go(func() { s.workers.Run(work) })
	working.Go(func() { s.moves.run(work, s.moved) })
	s.begin()
	<-ctx.Done()
	s.drain()
	s.streams.Wait()
	stop()
	working.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		a.peer.Close()
	}
}

// begin has agents served.
func (s *Service) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = true
}

// drain has agents refused, and ends all connections: in turns, so that those who serve the agents next are not met by all of them at once.
func (s *Service) drain() {
	s.mu.Lock()
	s.serving = false
	open := slices.Collect(maps.Keys(s.connections))
	s.mu.Unlock()
	within := min(s.options.Drain(), time.Duration(len(open))*turn)
	s.options.Logger.Info("Shutting down; agents are asked to connect again", "connections", len(open), "within", within.String())
	began := time.Now()
	for i, c := range open {
		<-time.After(time.Until(began.Add(within * time.Duration(i) / time.Duration(len(open)))))
		c.end(goaway.Err)
	}
}

// Changed says that an object that is shared with an agent changed, appeared or vanished, as far as a facet is concerned.
func (s *Service) Changed(agent string, f converge.Facet, key converge.Key) {
	if p := s.peer(agent); p != nil {
		p.Changed(f, key)
	}
}

// Resync has facets compared with what an agent holds.
func (s *Service) Resync(agent string, facets ...converge.Facet) {
	if p := s.peer(agent); p != nil {
		for _, f := range facets {
			p.Resync(f)
		}
	}
}

// ConfirmDeletions lets paused deletions go, and reports whether there were any.
func (s *Service) ConfirmDeletions(agent string, f converge.Facet, token string) bool {
	p := s.peer(agent)
	return p != nil && p.ConfirmDeletions(f, token)
}

// Backlog returns how many keys of a facet may differ from what the agents hold.
func (s *Service) Backlog(f converge.Facet) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sum := 0
	for _, a := range s.agents {
		sum += a.peer.Backlog(f)
	}
	return sum
}

// Session is the session of an agent that is connected, for operators.
type Session struct {
	Mode    string
	Address string
	// Kubernetes and ArgoCD are the versions that its cluster runs, as it says.
	Kubernetes, ArgoCD string
	// CertificateEnd is when what the agent has proven ends, and the session with it; zero for never.
	CertificateEnd time.Time
	// Backlog is how many keys may differ from what the agent holds, and Lag for how long the oldest has.
	Backlog int
	Lag     time.Duration
}

// Sessions returns those of all agents that are connected, by agent.
func (s *Service) Sessions() map[string]Session {
	all, peers := make(map[string]Session), make(map[string]*converge.Peer)
	s.mu.RLock()
	for name, a := range s.agents {
		if a.newest != nil {
			theirs := a.newest.theirs
			all[name] = Session{
				Mode: a.mode, Address: a.newest.address, Kubernetes: theirs.Kubernetes, ArgoCD: theirs.ArgoCD, CertificateEnd: a.newest.until,
			}
			peers[name] = a.peer
		}
	}
	s.mu.RUnlock()
	for name, p := range peers {
		session := all[name]
		session.Backlog, session.Lag = p.Waiting()
		all[name] = session
	}
	return all
}

func (s *Service) peer(name string) *converge.Peer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a := s.agents[name]; a != nil {
		return a.peer
	}
	return nil
}

// Connect serves one agent over one stream.
func (s *Service) Connect(grpcStream syncv1.Sync_ConnectServer) error {
	c, err := s.accept(grpcStream)
	if err != nil {
		return err
	}
	defer c.close()
	return c.logEnd(c.serve())
}

// enter makes this the newest session with an agent, and ends any older one. What a peer does outlives a session, and so
// does its context.
func (s *Service) enter(c *connection) (*agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What an agent gave up in favour of another connection may arrive late, its hello and its end together. It must not
	// end the other one.
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	a := s.agents[c.agent]
	if a != nil && a.newest != nil {
		a.newest.end(authn.ErrSuperseded)
	}
	if a == nil || a.mode != c.theirs.Mode {
		turn := make(chan struct{}, 1)
		if a != nil { // in another mode other things are shared
			a.peer.Close()
			turn = a.turn
		}
		options := s.options.Share(c.agent, c.theirs.Mode)
		options.Workers, options.Budget = s.workers, s.budgetOf(c.agent).Budget
		a = &agent{peer: converge.NewPeer(options), mode: c.theirs.Mode, turn: turn}
		s.agents[c.agent] = a
	}
	a.newest = c
	a.sessions++
	c.lease = s.options.Roster.Hold(peers.Session, c.agent, peers.About{Build: c.theirs.Build, Mode: c.theirs.Mode}, c.end)
	return a, nil
}

// leave ends the session of a connection with an agent.
func (s *Service) leave(c *connection, a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.sessions--
	if a.newest == c {
		a.newest = nil
	}
	c.lease.Release()
	s.forget(c.agent)
}

// SetCluster implements clusters.Listener. The Secret may say another mode than before.
func (s *Service) SetCluster(agent, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkMode(agent)
}

// checkMode ends the session of an agent that may no longer have its mode. s.mu is held.
func (s *Service) checkMode(name string) {
	if a := s.agents[name]; a != nil && a.newest != nil && a.mode != s.modeOf(name) {
		a.newest.end(s.wrongMode(name, a.mode))
	}
}

// RemoveCluster implements clusters.Listener. The agent may still have a Secret that is invalid.
func (s *Service) RemoveCluster(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkMode(agent)
	s.forget(agent)
}

// forget forgets an agent that has no session here, and either has one at another principal or no cluster Secret. s.mu is held.
func (s *Service) forget(name string) {
	a := s.agents[name]
	if a == nil || a.sessions > 0 || s.options.HasCluster(name) && !s.options.Roster.HeldElsewhere(peers.Session, name) {
		return
	}
	delete(s.agents, name)
	a.peer.Close()
	s.options.Forget(name)
}

// moved takes in that another principal serves an agent by now.
func (s *Service) moved(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(agent)
}
