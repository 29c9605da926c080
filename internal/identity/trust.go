package identity

import (
	"crypto/x509"
	"fmt"
)

// Trust decides whose proof is good now. Connections outlive handshakes, so it is asked again when it has changed.
type Trust interface {
	// Verify returns nil if the peer's proof is good now.
	Verify(peer Peer) error
	// Changed returns a channel that is closed when the answer may have changed.
	Changed() <-chan struct{}
}

// Verifier verifies the certificates that clients present: their own first. A certs.Source is one.
type Verifier interface {
	VerifyClient(presented []*x509.Certificate) error
	Changed() <-chan struct{}
}

// Verified returns a Trust in whose certificates a verifier accepts. By XFCC they are those of the proxy, and there are none if it is
// next to us; verifier may be nil where all come by such a proxy.
func Verified(verifier Verifier) Trust { return verified{verifier} }

type verified struct{ verifier Verifier }

// Verify implements Trust.
func (v verified) Verify(peer Peer) error {
	switch {
	case len(peer.Certificates) == 0 && peer.Method == XFCC:
		return nil
	case len(peer.Certificates) == 0 || v.verifier == nil:
		return fmt.Errorf("%w: nothing verifies a proof by %q here", ErrUnauthenticated, peer.Method)
	}
	return v.verifier.VerifyClient(peer.Certificates)
}

// Changed implements Trust.
func (v verified) Changed() <-chan struct{} {
	if v.verifier == nil {
		return nil
	}
	return v.verifier.Changed()
}
