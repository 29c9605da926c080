package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

const (
	// handshakeTimeout is how long an agent may take to send its hello.
	handshakeTimeout = 10 * time.Second
	// readyTimeout is how long an agent waits for a principal that is starting, rather than be refused, and lose more time until
	// its next attempt. Agents wait 10 s for an answer to their hellos, and those that wait in vain are to be told why.
	readyTimeout = 5 * time.Second
	// hubTimeout is how long the hub may take to register the agent's cluster, and then to say whether it knows the agent. Both come before
	// the answer to the hello, for which agents wait 10 s.
	hubTimeout = 4 * time.Second
	// catchUpTimeout is how long the principal's caches may be behind what an agent has seen of the hub at another principal. It is less
	// than agents wait for a sign of life.
	catchUpTimeout = 10 * time.Second
)

// maxSyncStreams is how many Sync streams an agent may have open. It needs one, and those that end may still be there when it connects
// again. Each may have a message in memory that nobody has looked at.
const maxSyncStreams = 16

var (
	errNoHello = status.Error(codes.DeadlineExceeded, "no hello came")
	errNotRead = status.Error(codes.DeadlineExceeded, "the agent did not take the answer to its hello")
	errEnded   = errors.New("the stream is over")
)

// connection is an agent's stream. What its session needs is kept here, and not in the frames of functions that wait for the
// session's end: an idle agent costs little but stacks, and those come in powers of two.
type connection struct {
	service *Service
	agent   string
	name    string                  // of the agent's proof
	address string                  // that it connects from
	until   time.Time               // its proof is valid
	raw     context.Context         //nolint:containedctx // gRPC's own, of the stream
	ctx     context.Context         //nolint:containedctx // raw, while the certificate is valid and nothing has called end
	end     context.CancelCauseFunc // ends the session
	release context.CancelFunc      // of the grant
	stream  *wire.Stream
	theirs  wire.Hello
	lease   *peers.Lease // of the session
	logger  *slog.Logger
	began   time.Time // the session, or the wait for its turn
}

// accept authenticates an agent and exchanges hellos. The caller closes the connection.
func (s *Service) accept(grpcStream syncv1.Sync_ConnectServer) (*connection, error) {
	cancel, err := cancelOf(grpcStream.Context())
	if err != nil {
		return nil, err
	}
	ctx, grant, err := s.options.Authn.Agent(grpcStream.Context())
	if err != nil {
		return nil, err
	}
	c := &connection{
		service: s, agent: string(grant.Agent), name: grant.Name(), address: grant.Address, until: grant.NotAfter,
		raw: grpcStream.Context(), release: grant.End,
	}
	c.ctx, c.end = context.WithCancelCause(ctx)
	c.logger = s.options.Logger.With("agent", c.agent, "address", grant.Address)
	c.stream = wire.NewStream(grpcStream, cancel, "/principal", c.logger)
	if err = s.admitConnect(c.agent); err == nil {
		err = s.open(c)
	}
	if err == nil {
		err = c.handshake()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	c.began = time.Now()
	return c, nil
}

// open has Run wait for the end of a connection, and the connection receive.
func (s *Service) open(c *connection) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.serving {
		return goaway.Err
	}
	if s.streamsOf[c.agent] >= maxSyncStreams {
		err := status.Errorf(codes.ResourceExhausted, "the agent has %d Sync streams open, which is the limit", maxSyncStreams)
		s.options.Authn.LogRefusal(c.name, c.logger, err)
		return err
	}
	s.streamsOf[c.agent]++
	s.connections[c] = struct{}{}
	s.streams.Add(1)
	s.streams.Go(c.stream.Run)
	return nil
}

// close ends what accept began.
func (c *connection) close() {
	c.stream.Close(errEnded)
	c.end(nil)
	c.release()
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, opened := s.connections[c]; opened {
		delete(s.connections, c)
		if s.streamsOf[c.agent]--; s.streamsOf[c.agent] == 0 {
			delete(s.streamsOf, c.agent)
		}
		s.streams.Done()
	}
}

// handshake waits until sessions may begin, and exchanges hellos. A refused agent gets the reason, and the log has it too. An
// agent that leaves without a hello is not logged.
func (c *connection) handshake() error {
	s := c.service
	if err := c.awaitReady(); err != nil {
		return err
	}
	if err := c.awaitTurn(); err != nil {
		return err
	}
	err := asStatus(c.exchangeHellos())
	if err != nil && c.raw.Err() == nil && !errors.Is(err, goaway.Err) {
		s.options.Authn.LogRefusal(c.name, c.logger, err)
	}
	return err
}

// awaitReady waits until sessions may begin.
func (c *connection) awaitReady() error {
	ctx, cancel := context.WithTimeout(c.ctx, readyTimeout)
	defer cancel()
	err := c.service.options.Ready(ctx)
	switch {
	case c.ctx.Err() != nil:
		return asStatus(context.Cause(c.ctx))
	case err != nil:
		return status.Error(codes.Unavailable, "the principal is not ready: "+err.Error())
	}
	return nil
}

// awaitTurn waits until it is the agent's turn to be served, or tells it when that is. Those who are told are counted, and logged together.
func (c *connection) awaitTurn() error {
	later, err := c.service.turns.await(c.ctx)
	switch {
	case err != nil:
		return asStatus(err)
	case later == 0:
		return nil
	}
	c.service.metrics.deferred.Inc()
	c.service.sometimes.Do(func() {
		c.service.options.Logger.Info("Agents are told to connect later: more come at once than --sessions-per-second allows",
			"sessions_per_second", int(c.service.turns.limiter.Limit()), "after", later.Round(time.Millisecond).String())
	})
	return errLater(later)
}

// serve waits until an older session with the agent has ended, and runs one.
func (c *connection) serve() error {
	a, err := c.service.enter(c)
	if err != nil {
		return err
	}
	defer c.service.leave(c, a)
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-c.ctx.Done():
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if err := c.catchUp(a.peer); err != nil {
		return err
	}
	c.stream.ExpectHeartbeats(c.theirs.Every())
	c.logBegin()
	defer c.service.metrics.connected.Dec()
	return a.peer.RunSession(c.ctx, c.stream, c.theirs.Every())
}

// catchUp waits until the principal has seen all that the agent has been told of the hub, perhaps by another principal: what is not in
// its caches yet it would have the agent delete.
func (c *connection) catchUp(p *converge.Peer) error {
	ctx, cancel := context.WithTimeout(c.ctx, catchUpTimeout)
	defer cancel()
	seen := make(map[converge.Facet]uint64, len(c.theirs.Seen))
	for facet, revision := range c.theirs.Seen {
		seen[converge.Facet(facet)] = revision
	}
	err := p.Reach(ctx, seen)
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	}
	c.logger.Warn("The principal is behind what the agent has seen of the hub", "error", err)
	return status.Error(codes.Unavailable, "the principal is behind what the agent has seen of the hub: connect again")
}

func (c *connection) logBegin() {
	c.service.options.Authn.Admitted(c.name)
	c.service.metrics.connections.Inc()
	c.service.metrics.connected.Inc()
	c.logger.Info("An agent connected to the subscription stream", "build", c.theirs.Build, "mode", c.theirs.Mode)
}

// logEnd logs with which error a session ended, and returns that as a status for the agent. A shutdown ends all sessions, and
// is logged once.
func (c *connection) logEnd(err error) error {
	err = asStatus(err)
	level := slog.LevelInfo
	if errors.Is(err, goaway.Err) {
		level = slog.LevelDebug
	}
	c.logger.Log(c.raw, level, "An agent disconnected",
		"after", time.Since(c.began).Round(time.Millisecond).String(), "reason", reason(c.raw, c.stream, err))
	return err
}

// exchangeHellos receives the agent's hello and answers it, if both fit together.
func (c *connection) exchangeHellos() error {
	theirs, err := c.recvHello()
	if err != nil {
		return err
	}
	s := c.service
	mine := s.options.Hello()
	mine.Agent = c.agent
	misfit := s.misfit(&mine, theirs)
	var registering error
	if misfit == nil && s.options.Register != nil && s.options.OtherCluster(c.agent) == "" {
		registering = c.register(theirs)
	}
	if err := c.errIfUnknown(registering); err != nil {
		return err
	}
	switch {
	case misfit != nil:
		return misfit
	case theirs.Mode != s.modeOf(c.agent):
		return s.wrongMode(c.agent, theirs.Mode)
	}
	mine.Mode = theirs.Mode
	theirs.ClusterLabels, theirs.ClusterAnnotations = nil, nil // nobody needs them any more
	c.theirs = theirs
	return c.sendHello(mine)
}

func (c *connection) recvHello() (wire.Hello, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, handshakeTimeout, errNoHello)
	defer cancel()
	return c.stream.RecvHello(ctx)
}

// register has the agent's cluster register, and returns why it could not. A hub that is slow to write must not take all the time that the
// agent waits: one that the hub knows otherwise is served all the same, and another learns the reason.
func (c *connection) register(theirs wire.Hello) error {
	ctx, cancel := context.WithTimeout(c.ctx, hubTimeout)
	defer cancel()
	err := c.service.options.Register(ctx, c.agent, theirs)
	if err == nil || ctx.Err() == nil || c.ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("the hub's API server did not answer within %v, and the agent tries again by itself: %w", hubTimeout, err)
}

// misfit returns, as a status, why a principal and an agent do not fit together, whatever the hub knows of the agent. It notes in the
// principal's hello which version both speak.
func (s *Service) misfit(mine *wire.Hello, theirs wire.Hello) (err error) {
	mine.Newest, err = wire.Agree(*mine, theirs)
	switch {
	case err != nil:
		return status.Error(codes.FailedPrecondition, err.Error())
	case !slices.Contains(s.options.Modes, theirs.Mode):
		return status.Errorf(codes.FailedPrecondition, "mode: the agent's is %q, this principal serves %s: set --agent-mode",
			theirs.Mode, strings.Join(s.options.Modes, " and "))
	case theirs.Mapping != mine.Mapping:
		return status.Errorf(codes.FailedPrecondition, "mapping: the agent maps applications by %q, the principal by %q: "+
			"set --destination-based-mapping on both or on neither", theirs.Mapping, mine.Mapping)
	case theirs.Selector != mine.Selector:
		return status.Errorf(codes.FailedPrecondition, "label selector: the agent's is %.300q, the principal's %.300q: "+
			"set --label-selector to the same on both", theirs.Selector, mine.Selector)
	}
	return nil
}

// errIfUnknown returns why an agent is refused of which the hub has never heard, or whose name is that of a cluster which is not
// the agent's. A hub that it does not belong to would have it delete all that it holds; and what is shown as of a cluster of the
// hub's a controller of the hub's deploys there. registering is why the agent could not register its cluster: one that the hub knows
// otherwise is served without.
func (c *connection) errIfUnknown(registering error) error {
	if secret := c.service.options.OtherCluster(c.agent); secret != "" {
		return status.Errorf(codes.FailedPrecondition, "cluster Secret %s on the hub is of a cluster named %q that is not this agent's: give one of the two "+
			"another name, or, if it is the agent's, the Secret the label %s=%s", secret, c.agent, argocd.LabelAgent, c.agent)
	}
	ctx, cancel := context.WithTimeout(c.ctx, hubTimeout)
	defer cancel()
	switch known, err := c.service.options.Knows(ctx, c.agent); {
	case err != nil:
		return status.Errorf(codes.Unavailable, "whether the hub knows agent %q is not known: %v", c.agent, err)
	case registering != nil && known:
		c.service.registrations.Warn("An agent's cluster could not register; the agent is served without that", "agent", c.agent, "reason", registering)
	case registering != nil:
		if _, isStatus := status.FromError(registering); isStatus {
			return registering
		}
		return status.Error(codes.Unavailable, registering.Error())
	case !known:
		return status.Errorf(codes.FailedPrecondition, "the hub has no cluster Secret, no namespace and no Application for agent %q, and so decides "+
			"nothing for it: correct the agent's certificate if that is not its name, or create its cluster Secret with: argocd-agentctl agent create %s",
			c.agent, c.agent)
	}
	return nil
}

// modeOf returns the one mode that an agent may have.
func (s *Service) modeOf(agent string) string {
	return cmp.Or(s.options.Mode(agent), s.options.Modes[0])
}

// wrongMode says, as a status, that an agent has another mode than it may have, and what to do.
func (s *Service) wrongMode(agent, mode string) error {
	if pinned := s.options.Mode(agent); pinned != "" {
		return status.Errorf(codes.FailedPrecondition, "mode: the agent's is %q, and the label %s of its cluster Secret on the hub says %q: "+
			"set --agent-mode to that, or change the label", mode, argocd.LabelMode, pinned)
	}
	return status.Errorf(codes.FailedPrecondition, "mode: the agent's is %q, which the hub must allow, since it is %s otherwise: set --agent-mode=%s, "+
		"or on the hub the label %s=%s of its cluster Secret, as with: argocd-agentctl agent create %s --mode %s",
		mode, s.options.Modes[0], s.options.Modes[0], argocd.LabelMode, mode, agent, mode)
}

// sendHello answers a hello. It does not wait for ever, nor until after a shutdown, for an agent that reads nothing.
func (c *connection) sendHello(mine wire.Hello) error {
	ctx, cancel := context.WithTimeoutCause(c.ctx, handshakeTimeout, errNotRead)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.stream.Close(context.Cause(ctx)) })()
	return c.stream.SendHello(mine)
}

// asStatus returns the gRPC status that an error is or stands for. An agent that closes its side ends a stream well.
func asStatus(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return authn.Status(err)
}
