// Package authn says who may call the principal, and for how long: agents, and the hub's own components.
package authn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// Refusals are logged a few at a time, like those of TLS: an agent can cause thousands in a second.
const (
	refusalLogInterval = 5 * time.Second
	refusalLogBurst    = 20
)

// MaxStreams is how many streams an agent may have open: one to synchronise, one to listen, and one for each conversation of
// people with its cluster, such as those who watch logs and terminals. Each costs some 25 KiB before a word was said.
const MaxStreams = 1000

// Why a stream ends that did not fail. The texts are for the people who look after the agent.
var (
	// ErrSuperseded means that a newer stream of the same agent is served.
	ErrSuperseded = status.Error(codes.Aborted, "another agent connected by the same name, and the newer one is served: "+
		"give one of the two a certificate of its own name")
	// ErrDraining means that the principal ends.
	ErrDraining = status.Error(codes.Unavailable, "the principal is shutting down: connect again")
)

// Options configure a Gate.
type Options struct {
	// Identify tells which agent or component the peer of a connection is.
	Identify *identity.Authenticator
	// Trust tells which of those that it told are to be believed still.
	Trust identity.Trust
	// Logger takes who was refused.
	Logger *slog.Logger
}

// Gate admits callers of gRPC streams.
type Gate struct {
	options  Options
	monitor  *identity.CertificateMonitor
	refusals *rate.Limiter // of their log

	mu   sync.Mutex
	open map[identity.Agent]int // how many streams agents have. Guarded by mu
}

// New returns a gate.
func New(o Options) *Gate {
	return &Gate{
		options: o, monitor: identity.NewCertificateMonitor(o.Trust),
		refusals: rate.NewLimiter(rate.Every(refusalLogInterval), refusalLogBurst), open: make(map[identity.Agent]int),
	}
}

// Run ends streams whose proof is no longer good, until the context ends.
func (g *Gate) Run(ctx context.Context) { g.monitor.Run(ctx) }

// Pass is a caller's, for one stream.
type Pass struct {
	identity.Peer
	// End must be called when the stream is over.
	End context.CancelFunc
}

// Agent admits an agent to a stream, whose context it is given. The context that it returns ends when the stream may no
// longer rest on who the agent has proven to be; Status makes something of its cause. Errors are gRPC's, for the agent, and were logged.
func (g *Gate) Agent(ctx context.Context) (context.Context, Pass, error) {
	who, err := g.options.Identify.Authenticate(ctx)
	ctx, pass, err := g.admit(ctx, who, err)
	if err != nil {
		return nil, Pass{}, err
	}
	if !g.enter(who.Agent) {
		pass.End()
		err := status.Errorf(codes.ResourceExhausted, "the agent has %d streams open, which is the limit", MaxStreams)
		g.Refused(g.options.Logger.With("agent", string(who.Agent), "address", who.Address), err)
		return nil, Pass{}, err
	}
	end := pass.End
	pass.End = func() { g.leave(who.Agent); end() }
	return ctx, pass, nil
}

// enter reports whether an agent may have one more stream, and counts it.
func (g *Gate) enter(agent identity.Agent) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[agent] >= MaxStreams {
		return false
	}
	g.open[agent]++
	return true
}

func (g *Gate) leave(agent identity.Agent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[agent]--; g.open[agent] == 0 {
		delete(g.open, agent)
	}
}

// Component admits one of the hub's own components to a stream, as Agent does an agent.
func (g *Gate) Component(ctx context.Context) (context.Context, Pass, error) {
	who, err := g.options.Identify.AuthenticateComponent(ctx)
	return g.admit(ctx, who, err)
}

func (g *Gate) admit(ctx context.Context, who identity.Peer, err error) (context.Context, Pass, error) {
	if err != nil {
		g.Refused(g.options.Logger, err)
		return nil, Pass{}, status.Error(codes.Unauthenticated, err.Error())
	}
	ctx, end, err := g.monitor.Bind(ctx, who)
	if err != nil {
		err = Status(err)
		g.Refused(g.options.Logger.With("agent", string(who.Agent), "address", who.Address), err)
		return nil, Pass{}, err
	}
	return ctx, Pass{who, end}, nil
}

// Refused tells people that a caller was refused, unless many were lately.
func (g *Gate) Refused(logger *slog.Logger, err error) {
	if g.refusals.Allow() {
		logger.Warn("An agent was refused", "reason", status.Convert(err).Message())
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
