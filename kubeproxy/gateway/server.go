package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

const (
	// headerTimeout is how long a caller may take for its handshake, and for the headers of a request.
	headerTimeout = 10 * time.Second
	// keepFor is how long an unused connection of a caller is kept. Kubernetes' own clients let go after 90 seconds.
	keepFor = 3 * time.Minute
	// answerFor is how long requests that are ended may take to say so.
	answerFor = time.Second
	// maxStreams is how many requests a caller may have open over one HTTP/2 connection; for more it makes another.
	maxStreams = 250
	// pingAfter and pongWithin find out about callers that vanished while nothing was to be sent.
	pingAfter, pongWithin = 30 * time.Second, 15 * time.Second
)

// errStopping is why requests end that are open when the server is.
var errStopping = apihttp.Errorf(http.StatusServiceUnavailable, "kubeproxy is shutting down: ask again")

// Serve serves callers at the listener until the context ends, and returns when all requests are over. The configuration
// is to be one that verifies certificates, and is taken over.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	server := &http.Server{
		Handler: g, TLSConfig: bothProtocols(config),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: keepFor, MaxHeaderBytes: apihttp.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pongWithin},
		BaseContext:                  func(net.Listener) context.Context { return serving },
		ConnContext:                  callers.WithConnection,
		ErrorLog:                     slog.NewLogLogger(newLimited(g.options.Logger.Handler()), slog.LevelInfo),
	}
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			drain(ctx, server, g.options.Drain)
		case <-ended: // it could not serve
		}
		end(errStopping)
		drain(ctx, server, answerFor)
		_ = server.Close() // what remains is written to callers who do not read
		g.leave()
	}()
	defer func() { <-stopped }()
	defer close(ended)
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve callers: %w", err)
	}
	return nil
}

// drain takes no more requests, and lets open ones end for a while. Watches do not end by themselves.
func drain(ctx context.Context, server *http.Server, length time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), length)
	defer cancel()
	_ = server.Shutdown(ctx) // those that remain are ended next
}

// bothProtocols has a configuration offer HTTP/2 and HTTP/1.1. Answers are mostly longer than a packet and written at once,
// so TLS is not to begin with small records: each would be a system call.
func bothProtocols(config *tls.Config) *tls.Config {
	adapt := func(c *tls.Config) {
		c.NextProtos = []string{"h2", "http/1.1"}
		c.DynamicRecordSizingDisabled = true
	}
	adapt(config)
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen != nil {
				chosen = chosen.Clone()
				adapt(chosen)
			}
			return chosen, err
		}
	}
	return config
}

// limited lets a few lines pass at a time. The server logs what anybody can cause who reaches the port.
type limited struct {
	slog.Handler
	limit *rate.Limiter
}

func newLimited(handler slog.Handler) limited {
	return limited{Handler: handler, limit: rate.NewLimiter(rate.Every(refusalLogInterval), refusalLogBurst)}
}

// Handle implements slog.Handler.
func (l limited) Handle(ctx context.Context, line slog.Record) error {
	if !l.limit.Allow() {
		return nil
	}
	return l.Handler.Handle(ctx, line)
}
