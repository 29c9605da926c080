package callers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// anew is how long a certificate is believed before it is verified again although nothing changed: an authority of it may
// have expired.
const anew = time.Minute

// Proofs says for how long what a connection proved is to be believed. It is safe for concurrent use.
type Proofs struct {
	trust identity.Trust
	open  *identity.CertificateMonitor // what open requests rest on
}

// NewProofs returns Proofs that rest on the trust.
func NewProofs(trust identity.Trust) *Proofs {
	return &Proofs{trust: trust, open: identity.NewCertificateMonitor(trust)}
}

// Run ends requests whose certificate is no longer trusted, until the context ends.
func (p *Proofs) Run(ctx context.Context) { p.open.Run(ctx) }

// connectionKey finds what is remembered of a connection in the contexts of its requests.
type connectionKey struct{}

// connection remembers what was last found out about a connection's certificate.
type connection struct {
	latest atomic.Pointer[finding]
	holder atomic.Pointer[holder]
}

// memoryOf returns what is remembered of a request's connection; one that is forgotten if Connection made no room for it.
func memoryOf(ctx context.Context) *connection {
	if memory, ok := ctx.Value(connectionKey{}).(*connection); ok {
		return memory
	}
	return &connection{}
}

// finding is what is known of a connection's peer.
type finding struct {
	peer    identity.Peer
	changed <-chan struct{} // of the trust that it was verified by
	until   time.Time       // when to verify it again
	err     error
}

// Connection is for http.Server.ConnContext: it makes room for what is remembered of a connection. Without it everything is
// verified for every request.
func (*Proofs) Connection(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

// Rest returns who the caller is, and the request with a context that ends when that is no longer proven; see Unproven. The
// function that it returns is to be called when the request is over. Errors are *apihttp.Error.
func (p *Proofs) Rest(r *http.Request) (identity.Peer, *http.Request, context.CancelFunc, error) {
	found := p.find(r)
	if found.err != nil {
		return identity.Peer{}, nil, nil, unproven(found.err)
	}
	ctx, end := p.open.Watch(r.Context(), found.peer)
	// What is trusted may have changed in between. From here on it would end the context.
	if again := p.find(r); again.err != nil {
		end()
		return identity.Peer{}, nil, nil, unproven(again.err)
	}
	return found.peer, r.WithContext(ctx), end, nil
}

// Unproven returns why a request may not go on if its context has ended because what the caller proved is no longer to be
// believed, nil otherwise.
func Unproven(ctx context.Context) *apihttp.Error {
	if err := context.Cause(ctx); over(err) {
		return unproven(err)
	}
	return nil
}

func unproven(err error) *apihttp.Error {
	if over(err) {
		return apihttp.Errorf(http.StatusUnauthorized, "the client's %v", err)
	}
	return apihttp.Errorf(http.StatusUnauthorized, "%v", err)
}

// over reports whether an error means that a certificate was good.
func over(err error) bool {
	return errors.Is(err, identity.ErrExpired) || errors.Is(err, identity.ErrRevoked)
}

// find returns what is known of a request's peer, from memory while that holds.
func (p *Proofs) find(r *http.Request) *finding {
	now := time.Now()
	changed := p.trust.Changed()
	memory := memoryOf(r.Context())
	latest := memory.latest.Load()
	if latest != nil && latest.changed == changed && now.Before(latest.until) {
		return latest
	}
	found := &finding{changed: changed, until: now.Add(anew)}
	found.peer, found.err = identity.PeerOf(r.TLS, r.RemoteAddr)
	if found.err == nil {
		found.err = p.open.Verify(found.peer)
	}
	if found.err == nil && now.After(found.peer.NotAfter) {
		found.err = identity.ErrExpired
	}
	if found.err == nil && found.peer.NotAfter.Before(found.until) {
		found.until = found.peer.NotAfter
	}
	memory.latest.Store(found)
	return found
}
