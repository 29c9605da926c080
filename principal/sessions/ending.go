package sessions

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
)

// reason says, for operators, why a session ended with err. ctx is gRPC's own. When that ends gRPC says no more than that,
// so what is known elsewhere is asked for.
func reason(ctx context.Context, stream *wire.Stream, err error) string {
	if err == nil {
		return "the agent closed the stream"
	}
	if status.Code(err) != codes.Canceled || ctx.Err() == nil {
		return status.Convert(err).Message()
	}
	if last := stream.Ended(); last != nil && !errors.Is(last, io.EOF) && status.Code(last) != codes.Canceled {
		return status.Convert(last).Message()
	}
	if p, ok := peer.FromContext(ctx); ok {
		if w, ok := p.Addr.(watchedAddress); ok && w.connection.lost() != "" {
			return "the connection was lost: " + w.connection.lost()
		}
	}
	return "the agent closed the stream, and should say why in its own log"
}

// ServerOptions returns what a gRPC server needs that serves agents until the context ends, beside these credentials:
// handshakes that end with the context, connections that remember how they end, and streams that can be cancelled.
func ServerOptions(ctx context.Context, c credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(watchedCredentials{c, ctx}), grpc.InTapHandle(cancellable)}
}

// cancelKey is the key of the function that cancels a stream's context, in that context.
type cancelKey struct{}

// cancellable gives each stream of the Sync service a context that can be cancelled. Otherwise a Send that blocks would end only
// with the handler, which is the sender.
func cancellable(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName != syncv1.Sync_Connect_FullMethodName {
		return ctx, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, cancelKey{}, cancel), nil
}

// cancelOf returns what cancels a stream's context.
func cancelOf(ctx context.Context) (context.CancelFunc, error) {
	cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc)
	if !ok {
		return nil, status.Error(codes.Internal, "the gRPC server lacks the options that sessions.ServerOptions returns")
	}
	return cancel, nil
}

// watchedCredentials make connections that remember how they end. gRPC does not say whether an agent left or a connection
// was lost.
type watchedCredentials struct {
	credentials.TransportCredentials

	ctx context.Context //nolint:containedctx // of the server: gRPC passes none to a handshake
}

// ServerHandshake ends with the server's context. A server that stops waits for handshakes, and so for as long as a port
// scanner pleases, or until thousands of agents have connected again.
func (c watchedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	defer context.AfterFunc(c.ctx, func() { _ = raw.Close() })()
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	counted, _ := raw.(*connlimit.Conn) // nil if the server's listener counts no connections
	w := &watched{Conn: conn, counted: counted}
	var certificate *x509.Certificate
	if secure, ok := info.(credentials.TLSInfo); ok {
		if len(secure.State.PeerCertificates) == 0 {
			return w, info, nil // it waits on, until a stream of it has authenticated
		}
		certificate = secure.State.PeerCertificates[0]
	}
	if err := w.admit(certificate); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return w, info, nil
}

// admit gives a connection a place among those whose clients have authenticated: by a certificate, by a stream, or, without TLS, by the proxy
// before the server.
func (w *watched) admit(certificate *x509.Certificate) error {
	if w.counted == nil {
		return nil
	}
	return w.counted.Admit(certificate)
}

// Authenticated says that a stream of the connection has authenticated, which counts if the client has presented no certificate. See
// authn.Connection.
func (a watchedAddress) Authenticated() error { return a.connection.admit(nil) }

func (c watchedCredentials) Clone() credentials.TransportCredentials {
	return watchedCredentials{c.TransportCredentials.Clone(), c.ctx}
}

// watched is a connection that remembers how it ended.
type watched struct {
	net.Conn

	counted *connlimit.Conn

	mu    sync.Mutex
	cause error // the first error of Read or Write, or errGivenUp; nil while it has not ended. Guarded by mu
}

// errGivenUp means that gRPC closed the connection, not the peer.
var errGivenUp = errors.New("the agent did not answer keep-alive pings, or sent them more often than --keepalive-min-interval allows")

// watchedAddress is the only thing of a connection that gRPC gives to whoever serves its streams.
type watchedAddress struct {
	net.Addr
	connection *watched
}

func (w *watched) RemoteAddr() net.Addr { return watchedAddress{w.Conn.RemoteAddr(), w} }

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.end(err)
	}
	return n, err
}

// Write remembers too: the kernel reports a reset once, and the next call gets an orderly end.
func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if err != nil {
		w.end(err)
	}
	return n, err
}

func (w *watched) Close() error {
	w.end(errGivenUp)
	return w.Conn.Close()
}

func (w *watched) end(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.cause = cause
	}
}

// lost returns why the connection was lost. It is empty while it was not, or if the peer closed it.
func (w *watched) lost() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil || errors.Is(w.cause, io.EOF) {
		return ""
	}
	return w.cause.Error()
}
