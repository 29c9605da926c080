// Package sessions serves agents: it decides who may connect, runs one session with each, and hands the hub's changes to
// those agents that they concern.
package sessions

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/authn"
)

const (
	// handshakeTimeout is how long an agent may take to send its hello.
	handshakeTimeout = 10 * time.Second
	// maxWrites is how many writes to the hub may be under way at a time, for all agents together. An API server allows 200
	// by default, from everybody.
	maxWrites = 128
)

var (
	errNoHello = status.Error(codes.DeadlineExceeded, "no hello came")
	errEnded   = errors.New("the stream is over")
)

// Options configure a Service.
type Options struct {
	// Authn authenticates agents. Its Run must run.
	Authn *authn.Authenticator
	// Ready returns nil when sessions may begin, and otherwise why not: until the hub's objects are all known, agents would
	// be told to delete what is not known yet.
	Ready func() error
	// Share returns what is shared with an agent of that mode, which is as in its hello.
	Share func(agent, mode string) converge.Options
	// HasCluster reports whether the hub has a cluster Secret of an agent: it may be away, and is remembered.
	HasCluster func(agent string) bool
	// Forget is called when an agent has neither a session nor a cluster Secret any more.
	Forget func(agent string)
	// Modes are those that agents may have.
	Modes []string
	// Mode returns the one that the hub says an agent has, empty if it says nothing.
	Mode func(agent string) string
	// Hello returns the principal's.
	Hello func() wire.Hello
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
	streams sync.WaitGroup // that are being served, and their receivers

	mu      sync.RWMutex
	serving bool              // Run runs. Guarded by mu
	agents  map[string]*agent // that have a session, or have had one and have a cluster Secret. Guarded by mu
}

// agent is an agent that has connected.
type agent struct {
	peer     *converge.Peer
	mode     string                  // that it had then
	turn     chan struct{}           // of capacity one: is taken for the length of a session
	end      context.CancelCauseFunc // ends the newest session. Guarded by Service.mu
	sessions int                     // that run or wait for their turn. Guarded by Service.mu
}

// New returns a service that refuses agents until Run runs.
func New(o Options) *Service {
	return &Service{
		options: o, metrics: newMetrics(o.Registerer), workers: converge.NewWorkers(maxWrites), agents: make(map[string]*agent),
	}
}

// Run serves until the context ends, and returns when all sessions are over. Agents are asked to connect again.
func (s *Service) Run(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	working.Go(func() { s.workers.Run(work) })
	s.setServing(true)
	<-ctx.Done()
	s.setServing(false)
	s.streams.Wait()
	stop()
	working.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		a.peer.Close()
	}
}

// setServing has agents served, or refused and all sessions ended.
func (s *Service) setServing(serving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = serving
	if serving {
		return
	}
	for _, a := range s.agents {
		a.end(authn.ErrDraining)
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
	if err := s.openStream(); err != nil {
		return err
	}
	defer s.streams.Done()
	cancel, err := cancelOf(grpcStream.Context())
	if err != nil {
		return err
	}
	ctx, who, err := s.options.Authn.Agent(grpcStream.Context())
	if err != nil {
		return err
	}
	defer who.End()
	logger := s.options.Logger.With("agent", string(who.Agent), "address", who.Address)
	if err := s.options.Ready(); err != nil {
		return status.Error(codes.Unavailable, "the principal is not ready: "+err.Error())
	}
	stream := wire.NewStream(grpcStream, cancel, "/principal", logger)
	s.streams.Go(stream.Run)
	defer stream.Close(errEnded)
	theirs, err := s.handshake(ctx, string(who.Agent), stream)
	if err != nil {
		// One that goes without a hello is not logged: it was never here.
		if err = asStatus(err); err != nil && grpcStream.Context().Err() == nil {
			s.options.Authn.LogRefusal(logger, err)
		}
		return err
	}
	began := time.Now()
	err = asStatus(s.serve(ctx, string(who.Agent), theirs, stream, logger))
	logger.Info("An agent disconnected", "after", time.Since(began).Round(time.Millisecond).String(),
		"reason", reason(grpcStream.Context(), stream, err))
	return err
}

// openStream has Run wait for the end of a stream, which calls streams.Done.
func (s *Service) openStream() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.serving {
		return authn.ErrDraining
	}
	s.streams.Add(1)
	return nil
}

// asStatus returns the gRPC status that an error is or stands for. An agent that closes its side ends a stream well.
func asStatus(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return authn.Status(err)
}

// serve waits until an older session with an agent has ended, and runs one.
func (s *Service) serve(ctx context.Context, name string, theirs wire.Hello, stream *wire.Stream, logger *slog.Logger) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a, err := s.enter(ctx, name, theirs.Mode, end)
	if err != nil {
		return err
	}
	defer s.leave(name, a)
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stream.ExpectHeartbeats(theirs.Every())
	s.metrics.connections.Inc()
	s.metrics.connected.Inc()
	defer s.metrics.connected.Dec()
	logger.Info("An agent connected to the subscription stream", "build", theirs.Build, "mode", theirs.Mode)
	return a.peer.RunSession(ctx, stream, theirs.Every())
}

// handshake exchanges hellos.
func (s *Service) handshake(ctx context.Context, name string, stream *wire.Stream) (wire.Hello, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errNoHello)
	defer cancel()
	theirs, err := stream.RecvHello(ctx)
	if err != nil {
		return theirs, err
	}
	mine := s.options.Hello()
	mine.Agent = name
	mine.Newest, err = wire.Agree(mine, theirs)
	switch {
	case err != nil:
		return theirs, status.Error(codes.FailedPrecondition, err.Error())
	case !slices.Contains(s.options.Modes, theirs.Mode):
		return theirs, status.Errorf(codes.FailedPrecondition, "mode: the agent's is %q, this principal serves %s: set --agent-mode",
			theirs.Mode, strings.Join(s.options.Modes, " and "))
	case !slices.Contains([]string{"", theirs.Mode}, s.options.Mode(name)):
		return theirs, status.Errorf(codes.FailedPrecondition, "mode: the agent's is %q, and the label %s of its cluster Secret on the hub says %q: "+
			"set --agent-mode to that, or change the label", theirs.Mode, argocd.LabelMode, s.options.Mode(name))
	case theirs.Mapping != mine.Mapping:
		return theirs, status.Errorf(codes.FailedPrecondition, "mapping: the agent maps applications by %q, the principal by %q: "+
			"set --destination-based-mapping on both or on neither", theirs.Mapping, mine.Mapping)
	case theirs.Selector != mine.Selector:
		return theirs, status.Errorf(codes.FailedPrecondition, "label selector: the agent's is %q, the principal's %q: "+
			"set --label-selector to the same on both", theirs.Selector, mine.Selector)
	}
	mine.Mode = theirs.Mode
	return theirs, stream.SendHello(mine)
}

// enter makes this the newest session with an agent, and ends any older one. What a peer does outlives a session, and so
// does its context.
func (s *Service) enter(ctx context.Context, name, mode string, end context.CancelCauseFunc) (*agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.serving {
		return nil, authn.ErrDraining
	}
	// What an agent gave up in favour of another connection may arrive late, its hello and its end together. It must not
	// end the other one.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	a := s.agents[name]
	if a != nil {
		a.end(authn.ErrSuperseded)
	}
	if a == nil || a.mode != mode {
		turn := make(chan struct{}, 1)
		if a != nil { // in another mode other things are shared
			a.peer.Close()
			turn = a.turn
		}
		options := s.options.Share(name, mode)
		options.Workers = s.workers
		a = &agent{peer: converge.NewPeer(options), mode: mode, turn: turn}
		s.agents[name] = a
	}
	a.end = end
	a.sessions++
	return a, nil
}

// leave ends a session with an agent.
func (s *Service) leave(name string, a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.sessions--
	if !s.options.HasCluster(name) {
		s.forget(name)
	}
}

// SetCluster implements clusters.Listener.
func (s *Service) SetCluster(string, string) {}

// RemoveCluster implements clusters.Listener.
func (s *Service) RemoveCluster(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(agent)
}

// forget forgets an agent that has no cluster Secret, unless it has a session. s.mu is held.
func (s *Service) forget(name string) {
	if a := s.agents[name]; a != nil && a.sessions == 0 {
		delete(s.agents, name)
		a.peer.Close()
		s.options.Forget(name)
	}
}
