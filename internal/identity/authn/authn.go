// Package authn authenticates agents and the hub's own components, and ends their streams when their certificates are no
// longer valid.
package authn

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// readyTimeout is how long a caller waits for a principal that is starting.
const readyTimeout = 3 * time.Second

// MaxStreams is how many streams an agent may have open: one to synchronise, one to listen, and one for each tunnel
// connection, such as those of users who watch logs and terminals. Each costs some 25 KiB even when it is idle.
const MaxStreams = 1000

// ErrSuperseded means that a newer stream of the same agent is served. The text is for whoever looks after the agent.
var ErrSuperseded = status.Error(codes.Aborted, "another agent connected by the same name, and the newer one is served: "+
	"give one of the two a certificate of its own name")

// Options configure an Authenticator.
type Options struct {
	// Identify returns which agent or component the peer of a connection is.
	Identify *identity.Authenticator
	// Trust verifies that peer's certificate for as long as a stream is open.
	Trust identity.Trust
	// Ready, if set, waits until it is known who is refused, and returns why it is not if the context ends before that. Nobody
	// is admitted until then.
	Ready func(ctx context.Context) error
	// Logger gets the refusals.
	Logger *slog.Logger
}

// Authenticator authenticates callers of gRPC streams.
type Authenticator struct {
	options  Options
	monitor  *identity.CertificateMonitor
	refusals *rate.Limiter // of their log: an agent can cause thousands in a second

	mu      sync.Mutex
	streams map[identity.Agent]int // how many each agent has open. Guarded by mu
	refused map[string]string      // why callers were refused last, by their names. Guarded by mu
}

// New returns an authenticator.
func New(o Options) *Authenticator {
	return &Authenticator{
		options: o, monitor: identity.NewCertificateMonitor(o.Trust),
		refusals: logging.NewLimiter(), streams: make(map[identity.Agent]int),
		refused: make(map[string]string),
	}
}

// Run ends streams whose certificates are no longer valid, until the context ends.
func (a *Authenticator) Run(ctx context.Context) { a.monitor.Run(ctx) }

// Grant is a caller's permission for one stream.
type Grant struct {
	identity.Peer
	// End must be called when the stream is over.
	End context.CancelFunc
}

// Agent authenticates the agent that opened the stream of a context. The context that it returns ends when the agent's
// certificate is no longer valid; Status makes a status of its cause. Errors are gRPC's, for the agent, and were logged.
func (a *Authenticator) Agent(ctx context.Context) (context.Context, Grant, error) {
	peer, err := a.options.Identify.Authenticate(ctx)
	ctx, grant, err := a.bind(ctx, peer, err)
	if err != nil {
		return nil, Grant{}, err
	}
	if !a.acquireStream(peer.Agent) {
		grant.End()
		err := status.Errorf(codes.ResourceExhausted, "the agent has %d streams open, which is the limit", MaxStreams)
		a.LogRefusal(peer.Name(), a.loggerOf(peer), err)
		return nil, Grant{}, err
	}
	end := grant.End
	grant.End = func() { a.releaseStream(peer.Agent); end() }
	return ctx, grant, nil
}

// acquireStream reports whether an agent may have one more stream, and counts it.
func (a *Authenticator) acquireStream(agent identity.Agent) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams[agent] >= MaxStreams {
		return false
	}
	a.streams[agent]++
	return true
}

func (a *Authenticator) releaseStream(agent identity.Agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams[agent]--; a.streams[agent] == 0 {
		delete(a.streams, agent)
	}
}

// Component authenticates one of the hub's own components, as Agent does an agent.
func (a *Authenticator) Component(ctx context.Context) (context.Context, Grant, error) {
	peer, err := a.options.Identify.AuthenticateComponent(ctx)
	return a.bind(ctx, peer, err)
}

// MayDial returns nil if a component may dial a target at agents. Its error is gRPC's, for the component, and was logged.
func (a *Authenticator) MayDial(component Grant, target string) error {
	if slices.Contains(component.Targets, target) {
		return nil
	}
	err := status.Errorf(codes.PermissionDenied, "component %q may dial %s at agents, and not %s: give each component a certificate of its "+
		"own name, or change the principal's setting --hub-components", component.Component, strings.Join(component.Targets, " and "), target)
	a.Refused(component, err)
	return err
}

// Refused logs that a caller is refused for what it asks, though it is who it says.
func (a *Authenticator) Refused(caller Grant, err error) {
	a.LogRefusal(caller.Name(), a.loggerOf(caller.Peer), err)
}

// Admit authenticates a component that has one of the targets, for [peers.Service]: the cause of the end of its context is a status.
func (a *Authenticator) Admit(stream context.Context, targets ...string) (context.Context, func(), error) {
	bound, grant, err := a.Component(stream)
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(targets, func(target string) bool { return slices.Contains(grant.Targets, target) }) {
		err := a.MayDial(grant, targets[len(targets)-1])
		grant.End()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(stream)
	stop := context.AfterFunc(bound, func() { cancel(Status(context.Cause(bound))) })
	return ctx, func() { stop(); cancel(nil); grant.End() }, nil
}

// bind binds a stream to the certificate of its caller, unless that could not be identified.
func (a *Authenticator) bind(ctx context.Context, peer identity.Peer, err error) (context.Context, Grant, error) {
	if err != nil {
		a.LogRefusal("", a.options.Logger, err)
		return nil, Grant{}, status.Error(codes.Unauthenticated, err.Error())
	}
	if err := a.awaitReady(ctx); err != nil {
		return nil, Grant{}, err
	}
	ctx, end, err := a.monitor.Bind(ctx, peer)
	if err == nil {
		if err = authenticated(ctx); err != nil {
			end()
			err = status.Error(codes.ResourceExhausted, err.Error())
		}
	}
	if err != nil {
		err = Status(err)
		a.LogRefusal(peer.Name(), a.loggerOf(peer), err)
		return nil, Grant{}, err
	}
	return ctx, Grant{peer, end}, nil
}

// Connection is the address of a connection that is told when a stream of it has authenticated. It may refuse to have one more client.
type Connection interface {
	net.Addr
	Authenticated() error
}

// authenticated tells the connection of a stream.
func authenticated(ctx context.Context) error {
	remote, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil
	}
	if connection, ok := remote.Addr.(Connection); ok {
		return connection.Authenticated()
	}
	return nil
}

// awaitReady waits until it is known who is refused: a caller that comes while the principal starts need not come again.
func (a *Authenticator) awaitReady(ctx context.Context) error {
	if a.options.Ready == nil {
		return nil
	}
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := a.options.Ready(ready)
	switch {
	case ctx.Err() != nil:
		return Status(context.Cause(ctx))
	case err != nil:
		return status.Error(codes.Unavailable, "the principal is not ready: "+err.Error())
	}
	return nil
}

// loggerOf returns the logger for what concerns a caller.
func (a *Authenticator) loggerOf(peer identity.Peer) *slog.Logger {
	if peer.Component != "" {
		return a.options.Logger.With("component", peer.Component, "address", peer.Address)
	}
	return a.options.Logger.With("agent", string(peer.Agent), "address", peer.Address)
}

// maxRefused is how many refused callers are remembered, each with the reason.
const maxRefused = 10_000

// LogRefusal logs that a caller was refused, unless many were lately. What repeats is logged once: name is that of the
// caller's proof, empty if it has none, and counts until Admitted.
func (a *Authenticator) LogRefusal(name string, logger *slog.Logger, err error) {
	reason := status.Convert(err).Message()
	a.mu.Lock()
	defer a.mu.Unlock()
	if name != "" && a.refused[name] == reason || !a.refusals.Allow() {
		return
	}
	if name != "" {
		if len(a.refused) >= maxRefused {
			clear(a.refused)
		}
		a.refused[name] = reason
	}
	logger.Warn("Refused connection", "reason", reason)
}

// Admitted says that a caller of that name is served: should it be refused later, that is news.
func (a *Authenticator) Admitted(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.refused, name)
}

// Status returns the gRPC status that an error is or stands for, for the caller whose stream it ended.
func Status(err error) error {
	if errors.Is(err, identity.ErrExpired) || errors.Is(err, identity.ErrRevoked) {
		return status.Error(codes.Unauthenticated, "the client's "+err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
