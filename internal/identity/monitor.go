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

// The causes with which a CertificateMonitor ends a context.
var (
	// ErrExpired means that the certificate, or a CA that it depends on, has expired.
	ErrExpired = errors.New("certificate has expired: connect again with a newer one")
	// ErrRevoked means that the certificate is no longer trusted. The error that wraps it says why.
	ErrRevoked = errors.New("certificate is no longer trusted")
)

// CertificateMonitor ends streams and requests when the certificate of their peer expires or is no longer trusted. TLS
// verifies a certificate only once, in the handshake, and connections live longer than that. It is safe for concurrent use.
type CertificateMonitor struct {
	trust Trust

	mu   sync.RWMutex
	open map[*binding]struct{} // guarded by mu
}

// binding ties one stream or request to its peer.
type binding struct {
	peer   Peer
	revoke context.CancelCauseFunc
}

// bindingKey is the same for streams that are verified alike: those of one peer over one connection. Streams of a proxy's other clients
// are not, even over the same one.
type bindingKey struct {
	certificate      *x509.Certificate
	uri, fingerprint string
	agent            Agent
}

func (b *binding) key() bindingKey {
	key := bindingKey{fingerprint: b.peer.Fingerprint, agent: b.peer.Agent}
	if len(b.peer.Certificates) > 0 {
		key.certificate = b.peer.Certificates[0]
	}
	if len(b.peer.URIs) > 0 {
		key.uri = b.peer.URIs[0]
	}
	return key
}

// NewCertificateMonitor returns a monitor of certificates that trust verifies.
func NewCertificateMonitor(trust Trust) *CertificateMonitor {
	return &CertificateMonitor{trust: trust, open: make(map[*binding]struct{})}
}

// Bind returns a context that ends, with ErrExpired or ErrRevoked as its cause, when the peer's certificate is no longer
// good. Call the returned function when the stream or request is over. The error is one of the two if the certificate is
// not good now.
func (m *CertificateMonitor) Bind(ctx context.Context, peer Peer) (context.Context, context.CancelFunc, error) {
	ctx, end := m.Watch(ctx, peer)
	// The connection may be older than the trusted CAs are, or they changed during its handshake.
	if err := m.Verify(peer); err != nil {
		end()
		return nil, nil, err
	}
	return ctx, end, nil
}

// Watch is Bind without a verification at the start. The caller verifies after the call, so that no change goes unnoticed
// in between.
func (m *CertificateMonitor) Watch(ctx context.Context, peer Peer) (context.Context, context.CancelFunc) {
	ctx, expire := context.WithDeadlineCause(ctx, peer.NotAfter, ErrExpired)
	ctx, revoke := context.WithCancelCause(ctx)
	b := &binding{peer: peer, revoke: revoke}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[b] = struct{}{}
	return ctx, func() {
		m.mu.Lock()
		delete(m.open, b)
		m.mu.Unlock()
		revoke(nil)
		expire()
	}
}

// Verify returns ErrRevoked, with the reason, unless the peer's certificate is trusted now.
func (m *CertificateMonitor) Verify(peer Peer) error {
	if err := m.trust.Verify(peer); err != nil {
		return fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return nil
}

// Run verifies all bound certificates again whenever the trusted CAs change, until the context ends.
func (m *CertificateMonitor) Run(ctx context.Context) {
	for {
		changed := m.trust.Changed()
		m.verifyAll()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// verifyAll ends what is bound to certificates that are no longer good. It verifies each peer once, however many streams it
// has over one connection.
func (m *CertificateMonitor) verifyAll() {
	m.mu.RLock()
	open := slices.Collect(maps.Keys(m.open)) // verifying them takes too long to hold the lock
	m.mu.RUnlock()
	results := make(map[bindingKey]error)
	for _, b := range open {
		err, known := results[b.key()]
		if !known {
			err = m.trust.Verify(b.peer)
			results[b.key()] = err
		}
		if err != nil {
			b.revoke(fmt.Errorf("%w: %w", ErrRevoked, err))
		}
	}
}
