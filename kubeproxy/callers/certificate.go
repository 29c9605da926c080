package callers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// reverifyAfter is how long a verification holds while the trusted CAs stay the same: one of the CAs may expire.
const reverifyAfter = time.Minute

// connectionKey is the context key of a connection.
type connectionKey struct{}

// connection is what Callers remember of a connection.
type connection struct {
	address net.Addr
	// verified is the caller of the last request. Over a connection of a proxy the next one may be another's.
	verified atomic.Pointer[verified]
}

// verified is a peer whose proof was good when it was last verified.
type verified struct {
	peer    identity.Peer
	header  []string        // that it was read from, beside the connection
	changed <-chan struct{} // closed when the answer may have changed since
	until   time.Time
}

// WithConnection is for http.Server.ConnContext: it lets Callers remember what they found out about a connection.
func WithConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{address: conn.RemoteAddr()})
}

func connectionOf(ctx context.Context) *connection {
	if conn, ok := ctx.Value(connectionKey{}).(*connection); ok {
		return conn
	}
	return &connection{}
}

// Bind returns the peer of a request, and the request with a context that ends when the peer's proof is no longer good;
// see CertificateError. Call the returned function when the request is over. The error is an *apihttp.Error.
func (c *Callers) Bind(r *http.Request) (identity.Peer, *http.Request, context.CancelFunc, error) {
	conn, header := connectionOf(r.Context()), r.Header.Values(xfcc.Header)
	last, now := conn.verified.Load(), time.Now()
	if last == nil || !slices.Equal(last.header, header) || !now.Before(last.until) { // by a proxy, what was once good may be shown again
		proof, err := c.options.Proxies.Prove(identity.Connection{TLS: r.TLS, Address: conn.address, Header: header})
		if err != nil {
			return identity.Peer{}, nil, nil, unauthorized(err)
		}
		last = &verified{peer: identity.Peer{Proof: proof}, header: header}
	}
	peer := last.peer
	ctx, end := c.monitor.Watch(r.Context(), peer) // from here on the monitor notices changes
	changed := c.options.Trust.Changed()
	if last.changed == changed && now.Before(last.until) {
		return peer, r.WithContext(ctx), end, nil
	}
	err := c.monitor.Verify(peer)
	if err == nil && !now.Before(peer.NotAfter) {
		err = identity.ErrExpired
	}
	if err != nil {
		end()
		return identity.Peer{}, nil, nil, unauthorized(err)
	}
	until := now.Add(reverifyAfter)
	if peer.NotAfter.Before(until) {
		until = peer.NotAfter
	}
	conn.verified.Store(&verified{peer: peer, header: header, changed: changed, until: until})
	return peer, r.WithContext(ctx), end, nil
}

// Run ends the contexts of Bind whose certificates are no longer trusted, until the context ends.
func (c *Callers) Run(ctx context.Context) { c.monitor.Run(ctx) }

// CertificateError returns why the context of Bind has ended, nil if that is not because of the caller's certificate.
func CertificateError(ctx context.Context) *apihttp.Error {
	if err := context.Cause(ctx); wasGood(err) {
		return unauthorized(err)
	}
	return nil
}

func unauthorized(err error) *apihttp.Error {
	if errors.Is(err, errUnknown) {
		return apihttp.Errorf(http.StatusServiceUnavailable, "%v", err)
	}
	if wasGood(err) {
		return apihttp.Errorf(http.StatusUnauthorized, "the client's %v", err)
	}
	return apihttp.Errorf(http.StatusUnauthorized, "%v", err)
}

// wasGood reports whether an error means that a certificate is no longer good.
func wasGood(err error) bool {
	return errors.Is(err, identity.ErrExpired) || errors.Is(err, identity.ErrRevoked)
}
