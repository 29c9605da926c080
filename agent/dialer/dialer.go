// Package dialer keeps an agent connected to its principal.
package dialer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

const (
	// handshakeTimeout is how long the principal may take to answer the hello.
	handshakeTimeout = 10 * time.Second
	// repeatAfter is how long the log says nothing of attempts that fail for a reason that it has said.
	repeatAfter = time.Minute
	// maxReasons is how many different reasons the log says within repeatAfter. A network and a principal have some of them in
	// turn; whoever has another each time writes the log.
	maxReasons = 8
	// maxReason is how many bytes of a reason get into the log and into /readyz. The principal's may be a page.
	maxReason = 1 << 10
	// renewalDelay is how long a new certificate waits before it is shown to the principal, less up to half of it at random.
	renewalDelay = 5 * time.Second
)

// errEnded ends a stream that is of no use any more.
var errEnded = errors.New("the stream is over")

// errRenewed ends a session in favour of one that shows a newer certificate.
var errRenewed = errors.New("there is a newer certificate")

// Options configure a Dialer.
type Options struct {
	// Address is the principal's, host:port.
	Address string
	// Credentials secure the connection.
	Credentials credentials.TransportCredentials
	// KeepAlive is how often to see whether a quiet connection still works; 0 for never.
	KeepAlive time.Duration
	// DialContext opens the connection to an address; nil for TCP, through the proxy that the environment names, if any.
	DialContext func(ctx context.Context, address string) (net.Conn, error)
	// Dial are more options of gRPC.
	Dial []grpc.DialOption
	// Peer is what is shared with the principal.
	Peer *converge.Peer
	// Tunnel takes up what the hub dials; nil if it may not.
	Tunnel *tunnel.Server
	// Hello returns the agent's, for each connection anew.
	Hello func(context.Context) wire.Hello
	// OnHello, if set, gets the principal's hello, before anything else is read.
	OnHello func(wire.Hello)
	// Renewed returns a channel that is closed when the agent gets another certificate.
	Renewed func() <-chan struct{}
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger

	session identity.Session // of all connections: with each newer certificate the hub's tunnel connections over older ones stay
}

// Dialer keeps an agent connected.
type Dialer struct {
	options   Options
	metrics   metrics
	connected atomic.Bool
	reason    atomic.Pointer[error] // why it is not connected
	retired   sync.WaitGroup        // connections that have been replaced, and over which the hub has not said all
	left      addresses             // of principals that shut down
	unlisten  context.CancelFunc    // ends listening over one of these whose principal goes away; nil if there has been none
}

// New returns a dialer that is not connected.
func New(o Options) *Dialer {
	o.session = identity.NewSession()
	d := &Dialer{options: o, metrics: newMetrics(o.Registerer)}
	d.because(errors.New("the first connection is being made"))
	return d
}

// Connected returns nil while the agent is connected, and otherwise why it is not.
func (d *Dialer) Connected() error {
	if d.connected.Load() {
		return nil
	}
	return *d.reason.Load()
}

func (d *Dialer) because(err error) { d.reason.Store(&err) }

// Run connects, again and again, until the context ends.
func (d *Dialer) Run(ctx context.Context) {
	defer d.retired.Wait()
	again, failures := newRetry(), new(failureLog)
	for {
		lasted, err := d.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		d.because(errors.New(text(err)))
		timer := time.NewTimer(d.retryDelay(ctx, again, failures, lasted, err))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// retryDelay returns how long to wait before the next attempt, and logs why.
func (d *Dialer) retryDelay(ctx context.Context, again *retry, failures *failureLog, lasted time.Duration, err error) time.Duration {
	first := again.firstSuperseded(lasted)
	delay := again.after(lasted, err)
	logger := d.options.Logger.With("backoff", delay.String())
	switch {
	case errors.Is(err, errRenewed):
		d.options.Logger.Info("Certificate renewed; reconnecting")
	case isTold(err):
		logger.Log(ctx, min(failures.level(lasted, text(err)), slog.LevelInfo), "Principal asks to connect later", "reason", text(err))
	case goaway.Is(err) && lasted > 0:
		logger.Log(ctx, min(failures.level(lasted, text(err)), slog.LevelInfo), "Principal is shutting down; reconnecting")
	case superseded(err) && first:
		logger.Error("Principal serves another agent of this name; retrying", "error", text(err))
	case superseded(err):
		logger.Info("Principal still serves another agent of this name; retrying")
	default:
		logger.Log(ctx, failures.level(lasted, text(err)), "Connection to principal failed; retrying",
			"address", d.options.Address, "error", text(err))
	}
	return delay
}

// failureLog keeps a principal that is away for an hour, or that says something else each time, from filling the log.
type failureLog struct {
	since time.Time           // when the first of these was logged
	said  map[string]struct{} // reasons that were logged
}

// level returns the level to log a reason at, of a connection that lasted so long: that of debugging if it was logged within
// repeatAfter, or maxReasons were. After a connection that was of use, the log says everything anew.
func (l *failureLog) level(lasted time.Duration, reason string) slog.Level {
	if lasted > steady || time.Since(l.since) >= repeatAfter {
		l.since, l.said = time.Now(), make(map[string]struct{}, maxReasons)
	}
	if _, said := l.said[reason]; said || len(l.said) == maxReasons {
		return slog.LevelDebug
	}
	l.said[reason] = struct{}{}
	return slog.LevelWarn
}

// text returns what an error says, without what gRPC puts around it, as it may stand in a log line.
func text(err error) string {
	if refused := (refusedError{}); errors.As(err, &refused) {
		err = refused.error
	}
	if s, ok := status.FromError(err); ok {
		return printable(s.Message())
	}
	return printable(err.Error())
}

// printable returns a text as it may stand in a log line: the principal may have written it, or whoever answers in its place.
func printable(said string) string {
	said = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		default:
			return r
		}
	}, said)
	if len(said) > maxReason {
		return strings.ToValidUTF8(said[:maxReason], "") + "…"
	}
	return said
}

// connect connects and runs one session, and returns for how long: not at all, if nobody answered the hello. After a renewal
// of the certificate, when the principal goes away, and when another agent of this name has come, such as the Pod that takes this one's place,
// the old connection stays open for its tunnel connections: no terminal or log ends for that. The newer certificate speaks for them too, see
// identity.Session.
func (d *Dialer) connect(ctx context.Context) (lasted time.Duration, err error) {
	seen := new(handshakes)
	conn, err := grpc.NewClient(d.options.Address, transport(d.options, handshake{d.options.Credentials, seen}, d.left)...)
	if err != nil {
		return 0, err
	}
	ctx, end := context.WithCancel(ctx)
	var hub sync.WaitGroup
	over := func() {
		hub.Wait()
		end()
		_ = conn.Close() // it only ever says that it was closed before
	}
	lasted, err = d.runSession(ctx, conn, &hub)
	if goaway.Is(err) {
		d.left = d.left.and(seen.at())
	}
	if errors.Is(err, errRenewed) || lasted > 0 && (goaway.Is(err) || superseded(err)) {
		d.retired.Go(over)
		return lasted, err
	}
	end()
	over()
	if lasted == 0 && seen.refused.Load() && status.Code(err) == codes.Unavailable {
		err = refusedError{err}
	}
	return lasted, err
}

// runSession runs one session over a connection. What the hub says to the spoke over it may last until ctx ends.
func (d *Dialer) runSession(ctx context.Context, conn *grpc.ClientConn, hub *sync.WaitGroup) (lasted time.Duration, err error) {
	renewed, mine := d.options.Renewed(), d.options.Hello(ctx)
	streaming, end := context.WithCancel(ctx)
	var receiver sync.WaitGroup
	defer receiver.Wait()
	defer end()
	grpcStream, err := syncv1.NewSyncClient(conn).Connect(streaming)
	if err != nil {
		return 0, err
	}
	stream := wire.NewStream(grpcStream, end, "/agent", d.options.Logger)
	receiver.Go(stream.Run)
	defer stream.Close(errEnded)
	theirs, err := d.handshake(ctx, stream, mine)
	if err != nil {
		return 0, err
	}
	connected := time.Now()
	stream.ExpectHeartbeats(mine.Every())
	d.connected.Store(true)
	defer d.connected.Store(false)
	d.metrics.connections.Inc()
	d.metrics.connected.Set(1)
	defer d.metrics.connected.Set(0)
	d.options.Logger.Info("Starting to receive events from event stream",
		"principal", d.options.Address, "build", printable(theirs.Build), "agent", printable(theirs.Agent), "protocol", theirs.Newest)

	session, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer cancelWhenRenewed(session, renewed, cancel)()
	listening, unlisten := context.WithCancel(ctx)
	if d.options.Tunnel != nil {
		hub.Go(func() {
			defer unlisten()
			d.serveTunnel(ctx, listening, session, conn, hub, cancel)
		})
	}
	err = d.options.Peer.RunSession(session, stream, mine.Every())
	if goaway.Is(err) {
		d.listenOn(unlisten)
	} else {
		unlisten()
	}
	return time.Since(connected), err
}

// listenOn has the hub reach the spoke over a connection whose principal goes away, until it does over the next one: then the principal
// there tells the other. There is one such connection at most, whatever principals say.
func (d *Dialer) listenOn(unlisten context.CancelFunc) {
	if d.unlisten != nil {
		d.unlisten()
	}
	d.unlisten = unlisten
}

// serveTunnel has the hub reach the spoke over a connection. A principal that stops to listen has given up on the connection, unless there is
// a newer one.
func (d *Dialer) serveTunnel(ctx, listening, session context.Context, conn *grpc.ClientConn, hub *sync.WaitGroup, cancel context.CancelCauseFunc) {
	err := d.options.Tunnel.Serve(ctx, listening, conn, hub)
	switch {
	case session.Err() != nil:
	case status.Code(err) == codes.Unimplemented:
		d.options.Logger.Warn("Principal does not serve tunnels: live views and actions do not reach this cluster; upgrade the principal")
	default:
		cancel(err)
	}
}

// handshake exchanges hellos, and returns the principal's.
func (d *Dialer) handshake(ctx context.Context, stream *wire.Stream, mine wire.Hello) (wire.Hello, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errors.New("the principal did not answer the hello"))
	defer cancel()
	// A Send that blocks ends then, too.
	defer context.AfterFunc(ctx, func() { stream.Close(context.Cause(ctx)) })()
	mine.Seen = make(map[string]uint64)
	for facet, revision := range d.options.Peer.Seen() {
		mine.Seen[string(facet)] = revision
	}
	if err := stream.SendHello(mine); err != nil && !errors.Is(err, io.EOF) { // the answer says why
		return wire.Hello{}, err
	}
	theirs, err := stream.RecvHello(ctx)
	if err == nil && d.options.OnHello != nil {
		d.options.OnHello(theirs)
	}
	return theirs, err
}

// cancelWhenRenewed cancels a session a little after there is a newer certificate. The function that it returns ends that.
func cancelWhenRenewed(ctx context.Context, renewed <-chan struct{}, cancel context.CancelCauseFunc) func() {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			return
		case <-renewed:
		}
		timer := time.NewTimer(jitter(renewalDelay))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			cancel(errRenewed)
		}
	}()
	return func() {
		stop()
		<-done
	}
}
