// Package authn authenticates agents and the hub's own components, and ends their streams when their certificates are no
// longer valid.
package authn

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// The log of refusals is limited like that of TLS: an agent can cause thousands in a second.
const (
	refusalLogInterval = 5 * time.Second
	refusalLogBurst    = 20
)

// MaxStreams is how many streams an agent may have open: one to synchronise, one to listen, and one for each tunnel
// connection, such as those of users who watch logs and terminals. Each costs some 25 KiB even when it is idle.
const MaxStreams = 1000

// Why a stream ends that did not fail. The texts are for whoever looks after the agent.
var (
	// ErrSuperseded means that a newer stream of the same agent is served.
	ErrSuperseded = status.Error(codes.Aborted, "another agent connected by the same name, and the newer one is served: "+
		"give one of the two a certificate of its own name")
	// ErrDraining means that the principal shuts down.
	ErrDraining = status.Error(codes.Unavailable, "the principal is shutting down: connect again")
)

// Options configure an Authenticator.
type Options struct {
	// Identify returns which agent or component the peer of a connection is.
	Identify *identity.Authenticator
	// Trust verifies that peer's certificate for as long as a stream is open.
	Trust identity.Trust
	// Logger gets the refusals.
	Logger *slog.Logger
}

// Authenticator authenticates callers of gRPC streams.
type Authenticator struct {
	options  Options
	monitor  *identity.CertificateMonitor
	refusals *rate.Limiter // of their log

	mu      sync.Mutex
	streams map[identity.Agent]int // how many each agent has open. Guarded by mu
}

// New returns an authenticator.
func New(o Options) *Authenticator {
	return &Authenticator{
		options: o, monitor: identity.NewCertificateMonitor(o.Trust),
		refusals: rate.NewLimiter(rate.Every(refusalLogInterval), refusalLogBurst), streams: make(map[identity.Agent]int),
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
		a.LogRefusal(a.options.Logger.With("agent", string(peer.Agent), "address", peer.Address), err)
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
	a.LogRefusal(a.options.Logger.With("component", component.Component, "address", component.Address), err)
	return err
}

// bind binds a stream to the certificate of its caller, unless that could not be identified.
func (a *Authenticator) bind(ctx context.Context, peer identity.Peer, err error) (context.Context, Grant, error) {
	if err != nil {
		a.LogRefusal(a.options.Logger, err)
		return nil, Grant{}, status.Error(codes.Unauthenticated, err.Error())
	}
	ctx, end, err := a.monitor.Bind(ctx, peer)
	if err != nil {
		err = Status(err)
		a.LogRefusal(a.options.Logger.With("agent", string(peer.Agent), "address", peer.Address), err)
		return nil, Grant{}, err
	}
	return ctx, Grant{peer, end}, nil
}

// LogRefusal logs that a caller was refused, unless many were lately.
func (a *Authenticator) LogRefusal(logger *slog.Logger, err error) {
	if a.refusals.Allow() {
		logger.Warn("Refused connection", "reason", status.Convert(err).Message())
	}
}

// Status returns the gRPC status that an error is or stands for, for the caller whose stream it ended.
func Status(err error) error {
	if errors.Is(err, identity.ErrExpired) || errors.Is(err, identity.ErrRevoked) {
		return status.Error(codes.Unauthenticated, "the agent's "+err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
