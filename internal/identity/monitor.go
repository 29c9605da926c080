package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The causes with which a CertificateMonitor ends a context.
var (
	// ErrExpired means that the certificate, or a CA that it depends on, has expired, and there was no newer one in time.
	ErrExpired = errors.New("certificate has expired: connect again with a newer one")
	// ErrRevoked means that the certificate is no longer trusted. The error that wraps it says why.
	ErrRevoked = errors.New("certificate is no longer trusted")
)

// CertificateMonitor ends streams and requests when the certificate of their peer expires or is no longer trusted. TLS
// verifies a certificate only once, in the handshake, and connections live longer than that. A peer that opens a stream with a newer
// certificate in the same Session keeps its older streams. It is safe for concurrent use.
type CertificateMonitor struct {
	trust Trust

	mu       sync.Mutex
	open     map[*binding]struct{}              // guarded by mu
	sessions map[ownerKey]map[*binding]struct{} // those of open that belong together. Guarded by mu
}

// binding ties one stream or request to its peer.
type binding struct {
	peer   Peer // by its newest proof. Guarded by CertificateMonitor.mu
	revoke context.CancelCauseFunc
	expiry *time.Timer
}

// ownerKey is the same for streams that belong together.
type ownerKey struct {
	agent          Agent
	component, uri string
	session        Session
}

// owner returns the key of a peer's streams, and whether the peer says that they belong together.
func (p Peer) owner() (ownerKey, bool) {
	key := ownerKey{agent: p.Agent, component: p.Component, session: p.Session}
	if len(p.URIs) == 1 {
		key.uri = p.URIs[0]
	}
	return key, p.Session != "" && (p.Agent != "" || p.Component != "")
}

// NewCertificateMonitor returns a monitor of peers that trust verifies.
func NewCertificateMonitor(trust Trust) *CertificateMonitor {
	return &CertificateMonitor{trust: trust, open: make(map[*binding]struct{}), sessions: make(map[ownerKey]map[*binding]struct{})}
}

// Bind returns a context that ends, with ErrExpired or ErrRevoked as its cause, when the peer's certificate is no longer
// good. Call the returned function when the stream or request is over. The error is one of the two if the certificate is
// not good now. If it is, and newer than those of the older streams of the peer's session, it speaks for these too.
func (m *CertificateMonitor) Bind(ctx context.Context, peer Peer) (context.Context, context.CancelFunc, error) {
	ctx, end := m.Watch(ctx, peer)
	// The connection may be older than the trusted CAs are, or they changed during its handshake.
	if err := m.Verify(peer); err != nil {
		end()
		return nil, nil, err
	}
	m.renew(peer)
	return ctx, end, nil
}

// Watch is Bind without a verification at the start. The caller verifies after the call, so that no change goes unnoticed
// in between.
func (m *CertificateMonitor) Watch(ctx context.Context, peer Peer) (context.Context, context.CancelFunc) {
	ctx, revoke := context.WithCancelCause(ctx)
	b := &binding{peer: peer, revoke: revoke}
	b.expiry = time.AfterFunc(time.Until(peer.NotAfter), func() { revoke(ErrExpired) })
	owner, some := peer.owner()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[b] = struct{}{}
	if some {
		if m.sessions[owner] == nil {
			m.sessions[owner] = make(map[*binding]struct{})
		}
		m.sessions[owner][b] = struct{}{}
	}
	return ctx, func() {
		m.forget(b, owner)
		b.expiry.Stop()
		revoke(nil)
	}
}

func (m *CertificateMonitor) forget(b *binding, owner ownerKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, b)
	delete(m.sessions[owner], b)
	if len(m.sessions[owner]) == 0 {
		delete(m.sessions, owner)
	}
}

// renew has a newer proof of a peer speak for the older streams of its session.
func (m *CertificateMonitor) renew(peer Peer) {
	owner, some := peer.owner()
	if !some {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.sessions[owner] {
		// One that has expired has ended: its timer does not stop any more.
		if b.peer.NotAfter.Before(peer.NotAfter) && b.expiry.Stop() {
			b.peer = peer
			b.expiry.Reset(time.Until(peer.NotAfter))
		}
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

// sameKey is the same for streams that are verified alike: those of one peer over one connection. Streams of a proxy's other clients
// are not, even over the same one.
type sameKey struct {
	certificate      *x509.Certificate
	uri, fingerprint string
	agent            Agent
}

func (p Peer) same() sameKey {
	key := sameKey{fingerprint: p.Fingerprint, agent: p.Agent}
	if len(p.Certificates) > 0 {
		key.certificate = p.Certificates[0]
	}
	if len(p.URIs) > 0 {
		key.uri = p.URIs[0]
	}
	return key
}

// verifyAll ends what is bound to certificates that are no longer good. It verifies each peer once, however many streams it
// has over one connection.
func (m *CertificateMonitor) verifyAll() {
	m.mu.Lock()
	open := make(map[*binding]Peer, len(m.open)) // verifying them takes too long to hold the lock
	for b := range m.open {
		open[b] = b.peer
	}
	m.mu.Unlock()
	results := make(map[sameKey]error)
	for len(open) > 0 {
		newer := make(map[*binding]Peer) // for which another proof speaks by now: it was good, and may have been so before the change only
		for b, peer := range open {
			err, known := results[peer.same()]
			if !known {
				err = m.trust.Verify(peer)
				results[peer.same()] = err
			}
			if now := m.peerOf(b); now.same() != peer.same() {
				newer[b] = now
			} else if err != nil {
				b.revoke(fmt.Errorf("%w: %w", ErrRevoked, err))
			}
		}
		open = newer
	}
}

// peerOf returns the peer of a binding by its newest proof.
func (m *CertificateMonitor) peerOf(b *binding) Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return b.peer
}
