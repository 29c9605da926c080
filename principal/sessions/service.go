// Package sessions serves agents: it says who may connect, holds one conversation with each, and hands the hub's changes
// to those whom they concern.
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

// greeting is how long an agent may take to say hello.
const greeting = 10 * time.Second

var errNoHello = status.Error(codes.DeadlineExceeded, "no hello came")

// Options configure a Service.
type Options struct {
	// Authn authenticates agents. Its Run must run.
	Authn *authn.Authenticator
	// Ready returns nil when conversations may begin, and otherwise why not: until the hub's objects are all known,
	// agents would be told to delete what is not known yet.
	Ready func() error
	// Share returns what is shared with an agent of that mode, which is as in its hello.
	Share func(agent, mode string) converge.Options
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

	options     Options
	metrics     metrics
	connections sync.WaitGroup // streams and what carries them
	work        sync.WaitGroup // what peers do

	mu     sync.RWMutex
	begin  func(*converge.Peer) (stop func()) // has a peer do its work as long as Run runs; nil when it does not. Guarded by mu
	agents map[string]*agent                  // everyone who has connected since the start. Guarded by mu
}

// agent is an agent that has connected.
type agent struct {
	peer *converge.Peer
	mode string                  // that it had then
	stop func()                  // ends what the peer does
	turn chan struct{}           // of capacity one: is taken for the length of a conversation
	end  context.CancelCauseFunc // ends the newest conversation. Guarded by Service.mu
}

// New returns a service that refuses agents until Run runs.
func New(o Options) *Service {
	return &Service{
		options: o, metrics: newMetrics(o.Registerer), agents: make(map[string]*agent),
	}
}

// Run serves until the context ends, and returns when all conversations are over. Agents are told to connect again.
func (s *Service) Run(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.mu.Lock()
	s.begin = func(p *converge.Peer) func() {
		ctx, cancel := context.WithCancel(work)
		s.work.Go(func() { p.Run(ctx) })
		return cancel
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.begin = nil
	for _, a := range s.agents {
		a.end(authn.ErrDraining)
	}
	s.mu.Unlock()
	s.connections.Wait()
	stop()
	s.work.Wait()
}

// Changed says that an object that is shared with an agent changed, appeared or vanished, as far as a facet is concerned.
func (s *Service) Changed(agent string, f converge.Facet, key converge.Key) {
	if p := s.peer(agent); p != nil {
		p.Changed(f, key)
	}
}

// Compare has facets compared with what an agent holds.
func (s *Service) Resync(agent string, facets ...converge.Facet) {
	if p := s.peer(agent); p != nil {
		for _, f := range facets {
			p.Resync(f)
		}
	}
}

// Release lets deletions go that are held back, and reports whether there were any.
func (s *Service) ConfirmDeletions(agent string, f converge.Facet, word string) bool {
	p := s.peer(agent)
	return p != nil && p.ConfirmDeletions(f, word)
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
	ctx, who, err := s.options.Authn.Agent(grpcStream.Context())
	if err != nil {
		return err
	}
	defer who.End()
	logger := s.options.Logger.With("agent", string(who.Agent), "address", who.Address)
	if err := s.options.Ready(); err != nil {
		return status.Error(codes.Unavailable, "the principal is not ready: "+err.Error())
	}
	stream, err := s.open(grpcStream, logger)
	if err != nil {
		return err
	}
	defer stream.Close()

	theirs, err := s.greet(ctx, string(who.Agent), stream)
	if err != nil {
		// One that goes without a hello is no news: it was never here.
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

// open opens a stream, of which Run waits for the end.
func (s *Service) open(grpcStream syncv1.Sync_ConnectServer, logger *slog.Logger) (*wire.Stream, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.begin == nil {
		return nil, authn.ErrDraining
	}
	stream := wire.Open(grpcStream, "/principal", logger)
	s.connections.Go(stream.Wait)
	return stream, nil
}

// asStatus returns the gRPC status that an error is or stands for. An agent that closes its side ends a stream well.
func asStatus(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return authn.Status(err)
}

// serve waits until an older conversation with an agent has ended, and holds one.
func (s *Service) serve(ctx context.Context, name string, theirs wire.Hello, stream *wire.Stream, logger *slog.Logger) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a, err := s.enter(ctx, name, theirs.Mode, end)
	if err != nil {
		return err
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stream.Beat(theirs.Every())
	s.metrics.connections.Inc()
	s.metrics.connected.Inc()
	defer s.metrics.connected.Dec()
	logger.Info("An agent connected to the subscription stream", "build", theirs.Build, "mode", theirs.Mode)
	return a.peer.RunSession(ctx, stream)
}

// greet exchanges hellos.
func (s *Service) greet(ctx context.Context, name string, stream *wire.Stream) (wire.Hello, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, greeting, errNoHello)
	defer cancel()
	theirs, err := stream.Greeting(ctx)
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
	return theirs, stream.Greet(ctx, mine)
}

// enter makes this the newest conversation with an agent, and ends any older one. What a peer does outlives a connection,
// and so does its context.
func (s *Service) enter(ctx context.Context, name, mode string, end context.CancelCauseFunc) (*agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begin == nil {
		return nil, authn.ErrDraining
	}
	// What an agent gave up in favour of another connection may be heard of late, its hello and its end together. It must
	// not end the other one.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	a := s.agents[name]
	if a != nil {
		a.end(authn.ErrSuperseded)
	}
	if a == nil || a.mode != mode {
		turn := make(chan struct{}, 1)
		if a != nil { // the same is shared otherwise from now on
			a.stop()
			turn = a.turn
		}
		a = &agent{peer: converge.NewPeer(s.options.Share(name, mode)), mode: mode, turn: turn}
		a.stop = s.begin(a.peer)
		s.agents[name] = a
	}
	a.end = end
	return a, nil
}
