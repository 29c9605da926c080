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

// Tokens verifies JWT-SVIDs. Package jwtsvid has one.
type Tokens interface {
	// Prove returns what a token proves of the stream that came with it, once: a token that was shown before is refused. Its error does
	// not contain the token.
	Prove(token string) (Proof, error)
	// VerifyToken returns nil as long as a token is good that was.
	VerifyToken(token string) error
}

// Verified returns a Trust in whose certificates a verifier accepts, and whose token tokens does. By XFCC the certificates are those of the
// proxy, and there are none if it is next to us; verifier may be nil where all come by such a proxy, and tokens where none are taken. Who
// makes the tokens' verifier sees to what changes in that.
func Verified(verifier Verifier, tokens Tokens) Trust { return verified{verifier, tokens} }

type verified struct {
	verifier Verifier
	tokens   Tokens
}

// Verify implements Trust.
func (v verified) Verify(peer Peer) error {
	switch {
	case peer.Method == JWTSVID && v.tokens != nil:
		return v.tokens.VerifyToken(peer.Token)
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
