package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

const (
	// headerTimeout is Options.HeaderTimeout if that is zero.
	headerTimeout = 10 * time.Second
	// callerIdleTimeout is how long an idle connection of a caller is kept. Kubernetes' own clients close theirs after 90 seconds.
	callerIdleTimeout = 3 * time.Minute
	// lingerTimeout is how long a connection stays after an error, for a caller that has not sent the whole body of its request:
	// it may read the answer only after that.
	lingerTimeout = 2 * time.Second
	// abortTimeout is how long cancelled requests may take to send an error.
	abortTimeout = time.Second
	// maxConcurrentStreams is how many requests a caller may have open on one HTTP/2 connection. For more it opens another.
	maxConcurrentStreams = 250
	// pingInterval and pingTimeout detect callers that vanished while there was nothing to send.
	pingInterval, pingTimeout = 30 * time.Second, 15 * time.Second
)

// errShuttingDown ends requests that are still open at shutdown.
var errShuttingDown = apihttp.Errorf(http.StatusServiceUnavailable, "kubeproxy is shutting down: ask again")

// Serve serves callers on the listener until the context ends, and returns when all requests have ended. The TLS
// configuration must verify client certificates; Serve changes it. Without one callers speak plain text, by HTTP/1.1 or h2c.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	server := &http.Server{
		Handler:           g,
		ReadHeaderTimeout: g.options.HeaderTimeout, IdleTimeout: callerIdleTimeout, MaxHeaderBytes: apihttp.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxConcurrentStreams, SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		BaseContext:                  func(net.Listener) context.Context { return serving },
		ConnContext:                  withConnection,
		ErrorLog:                     slog.NewLogLogger(logging.Limited(g.options.Logger).Handler(), slog.LevelInfo),
	}
	serve := server.Serve
	if config != nil {
		server.TLSConfig = withHTTP2(config)
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	} else {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			shutdown(ctx, server, g.options.DrainTimeout)
		case <-ended: // the listener failed
		}
		end(errShuttingDown)
		shutdown(ctx, server, abortTimeout)
		_ = server.Close() // what remains is written to callers that do not read
		g.close()
	}()
	defer func() { <-stopped }()
	defer close(ended)
	if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve callers: %w", err)
	}
	return nil
}

// countedKey is the context key of a connection's *connlimit.Conn.
type countedKey struct{}

// withConnection lets what serves the requests of a connection know it.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	counted := conn
	if secure, ok := conn.(*tls.Conn); ok {
		counted = secure.NetConn()
	}
	ctx = context.WithValue(ctx, countedKey{}, counted)
	return callers.WithConnection(ctx, conn)
}

// keep gives the connection of a request a place among those whose callers have authenticated, if the listener counts connections. This
// is not done in the handshake: what TLS calls there does not know yet whether the caller has the key of the certificate.
func keep(ctx context.Context, peer identity.Peer) error {
	counted, ok := ctx.Value(countedKey{}).(*connlimit.Conn)
	if !ok {
		return nil
	}
	var certificate *x509.Certificate // there is none if a proxy next to us vouches for the caller
	if len(peer.Certificates) > 0 {
		certificate = peer.Certificates[0]
	}
	if err := counted.Admit(certificate); err != nil {
		return apihttp.Errorf(http.StatusTooManyRequests, "%v", err)
	}
	return nil
}

// shutdown accepts no more requests, and waits for open ones until the timeout. Watches do not end by themselves.
func shutdown(ctx context.Context, server *http.Server, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_ = server.Shutdown(ctx) // the caller ends those that remain
}

// withHTTP2 makes a configuration offer HTTP/2 besides HTTP/1.1. It also turns off TLS's small first records: most responses
// are longer than a packet and written at once, so each record would cost a system call.
func withHTTP2(config *tls.Config) *tls.Config {
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
