package dialer

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

const (
	// opening is how long one attempt to connect may take, from TCP to the first answer over HTTP/2: several round trips, and
	// the principal may be far away. Unless it is said, gRPC gives them no more than its shortest pause between attempts.
	opening = 20 * time.Second
	// reaching is how long the first of these round trips may take. A network that drops packets gives no answer at all, and
	// the operating system repeats its own ever more seldom: a new attempt finds a principal that is back sooner.
	reaching = 3 * time.Second
)

// transport returns the options that a connection is made with. Addresses that the agent was asked to leave are tried last.
func transport(o Options, c credentials.TransportCredentials, left addresses) []grpc.DialOption {
	options := append(tunnel.DialOptions(left...),
		grpc.WithTransportCredentials(c), o.session.DialOption(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A stream that cannot be opened fails, and the dialer decides when to try again.
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: opening,
		}),
	)
	if o.KeepAlive > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.KeepAlive, Timeout: o.KeepAlive}))
	}
	if dial := o.DialContext; dial != nil || !proxied(o.Address) {
		if dial == nil {
			dial = dialTCP
		}
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, reaching, errors.New("no answer from the network"))
			defer cancel()
			conn, err := dial(ctx, address)
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Cause(ctx)}
			}
			return conn, err
		}))
	}
	return append(options, o.Dial...)
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}

// proxied reports whether the environment names a proxy for the address. gRPC goes through it if it dials itself.
func proxied(address string) bool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address}})
	return proxy != nil || err != nil
}

// handshake is the credentials of one connection. It remembers what gRPC passes on no more than the text of, if at all.
type handshake struct {
	credentials.TransportCredentials
	seen *handshakes
}

// handshakes is what was seen of those of one connection.
type handshakes struct {
	refused atomic.Bool            // one side refused the other
	address atomic.Pointer[string] // of the principal in the last one; nil before the first
}

// at returns the address that the connection is to, empty if it got nowhere.
func (s *handshakes) at() string {
	if address := s.address.Load(); address != nil {
		return *address
	}
	return ""
}

// ClientHandshake does the handshake.
func (h handshake) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	address := raw.RemoteAddr().String()
	h.seen.address.Store(&address)
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.look(err)
	if err != nil {
		return nil, nil, err
	}
	return &handshakeConn{Conn: conn, handshake: h}, info, nil
}

// Clone returns credentials that remember in the same place.
func (h handshake) Clone() credentials.TransportCredentials {
	return handshake{h.TransportCredentials.Clone(), h.seen}
}

// look looks whether an error is a refusal. A peer that hangs up in the middle may be one that shuts down.
func (h handshake) look(err error) {
	if failed := new(certs.HandshakeError); errors.As(err, &failed) && failed.Reason != certs.Disconnected {
		h.seen.refused.Store(true)
	}
}

// handshakeConn is where a client learns of its refusal with TLS 1.3: when it first reads.
type handshakeConn struct {
	net.Conn
	handshake handshake
}

func (c *handshakeConn) Read(buffer []byte) (int, error) {
	n, err := c.Conn.Read(buffer)
	if err != nil {
		c.handshake.look(err)
	}
	return n, err
}
