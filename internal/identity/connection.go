package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// Prove returns what a TLS connection proves of its peer, save for the name of an agent: that depends on who asks. Its
// errors wrap ErrUnauthenticated.
func PeerOf(state *tls.ConnectionState, address string) (Peer, error) {
	if state == nil {
		return Peer{}, fmt.Errorf("%w: the connection from %s does not use TLS: certificates cannot prove anything on it", ErrUnauthenticated, address)
	}
	if len(state.VerifiedChains) == 0 {
		return Peer{}, fmt.Errorf("%w: the connection from %s brought no verified client certificate: configure one on the caller", ErrUnauthenticated, address)
	}
	return describe(*state, address), nil
}

// AgentOf returns which agent a certificate names. That it was verified is for the caller to have seen to. Its errors wrap
// ErrUnauthenticated or ErrAgentName.
func (a *Authenticator) AgentOf(certificate *x509.Certificate) (Agent, error) {
	name, err := a.nameOf(certificate)
	if err != nil {
		return "", fmt.Errorf("%w: client certificate %q: %w", ErrUnauthenticated, certificate.Subject.String(), err)
	}
	agent, err := ParseAgent(name, a.reserved...)
	if err != nil {
		return "", fmt.Errorf("client certificate %q: %w", certificate.Subject.String(), err)
	}
	return agent, nil
}

// CommonName returns the one common name of a certificate's subject.
func CommonName(certificate *x509.Certificate) (string, error) { return commonName(certificate) }

// URI returns the one URI among a certificate's alternative names, such as its SPIFFE ID.
func URI(certificate *x509.Certificate) (string, error) { return uri(certificate) }
