package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Trust says which certificates are good, whatever was said of them when a connection was made.
type Trust interface {
	// VerifyClient returns nil if the certificates that a peer presented, its own first, are good now.
	VerifyClient(presented []*x509.Certificate) error
	// Changed returns a channel that is closed when that may have changed.
	Changed() <-chan struct{}
}

// What ends that rests on a certificate, as the cause of its context.
var (
	// ErrExpired means that the certificate, or an authority that it depends on, has expired.
	ErrExpired = errors.New("certificate has expired: connect again with a newer one")
	// ErrRevoked means that it is no longer trusted. The error that wraps it says why.
	ErrRevoked = errors.New("certificate is no longer trusted")
)

// Proofs ends what rests on certificates when these are no longer good: a connection outlives its handshake.
type Proofs struct {
	trust Trust

	mu   sync.RWMutex
	open map[*proof]struct{} // guarded by mu
}

// proof is what one stream or request rests on.
type proof struct {
	certificates []*x509.Certificate
	revoke       context.CancelCauseFunc
}

// NewProofs returns proofs that rest on trust.
func NewProofs(trust Trust) *Proofs { return &Proofs{trust: trust, open: make(map[*proof]struct{})} }

// Rest returns a context that ends, with ErrExpired or ErrRevoked as its cause, when what a peer does may no longer rest on
// who it has proven to be. The function that it returns must be called when that is over. The error is one of the two if it
// is too late already.
func (p *Proofs) Rest(ctx context.Context, who Peer) (context.Context, context.CancelFunc, error) {
	ctx, end := p.Hold(ctx, who)
	// The connection may be older than what is trusted now, or have been made while that changed.
	if err := p.Verify(who); err != nil {
		end()
		return nil, nil, err
	}
	return ctx, end, nil
}

// Hold is Rest for a caller who verifies that the peer is to be believed, after the call: what changes from then on ends the
// context.
func (p *Proofs) Hold(ctx context.Context, who Peer) (context.Context, context.CancelFunc) {
	ctx, expire := context.WithDeadlineCause(ctx, who.NotAfter, ErrExpired)
	ctx, revoke := context.WithCancelCause(ctx)
	mine := &proof{certificates: who.Certificates, revoke: revoke}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[mine] = struct{}{}
	return ctx, func() {
		p.mu.Lock()
		delete(p.open, mine)
		p.mu.Unlock()
		revoke(nil)
		expire()
	}
}

// Verify returns ErrRevoked, with why, unless a peer is to be believed now.
func (p *Proofs) Verify(who Peer) error {
	if err := p.trust.VerifyClient(who.Certificates); err != nil {
		return fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return nil
}

// Run watches over what rests on certificates, until the context ends.
func (p *Proofs) Run(ctx context.Context) {
	for {
		changed := p.trust.Changed()
		p.verify()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// verify ends what rests on certificates that are no longer good. All that goes over one connection rests on one, which is
// verified once.
func (p *Proofs) verify() {
	p.mu.RLock()
	open := slices.Collect(maps.Keys(p.open)) // to verify them takes too long for a lock
	p.mu.RUnlock()
	verdicts := make(map[*x509.Certificate]error)
	for _, one := range open {
		verdict, known := verdicts[one.certificates[0]]
		if !known {
			verdict = p.trust.VerifyClient(one.certificates)
			verdicts[one.certificates[0]] = verdict
		}
		if verdict != nil {
			one.revoke(fmt.Errorf("%w: %w", ErrRevoked, verdict))
		}
	}
}
