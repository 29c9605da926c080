package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Peer is who is at the other end of a connection, and what proved it.
type Peer struct {
	// Agent is the peer's name, if it is an agent.
	Agent Agent
	// Component is the peer's name, if it is a component of the hub.
	Component string
	// Targets are what that component may dial at an agent.
	Targets []string
	// NotAfter is when the proof ends: no stream may outlive it. It is when the certificate expires, or a CA
	// that it depends on, whichever is first.
	NotAfter time.Time
	// Certificates are what the peer proved it with: its own first, then those between it and a CA, as the peer
	// presented them. Whoever serves the peer for long asks again whether they are still good.
	Certificates []*x509.Certificate
	// Subject is the certificate's subject, for messages.
	Subject string
	// Address is where the connection comes from. It proves nothing.
	Address string
}

// ErrUnauthenticated is wrapped by errors about peers whose certificate does not say who they are.
var ErrUnauthenticated = errors.New("peer identity")

// PeerOf returns the peer of a TLS connection, without a name: AgentOf and ComponentOf know that. Its errors wrap
// ErrUnauthenticated.
func PeerOf(state *tls.ConnectionState, address string) (Peer, error) {
	if state == nil {
		return Peer{}, fmt.Errorf("%w: the connection from %s does not use TLS: certificates cannot prove anything on it", ErrUnauthenticated, address)
	}
	if len(state.VerifiedChains) == 0 {
		return Peer{}, fmt.Errorf("%w: the connection from %s brought no verified client certificate: configure one on the client",
			ErrUnauthenticated, address)
	}
	return Peer{
		NotAfter:     validUntil(state.VerifiedChains),
		Certificates: state.PeerCertificates,
		Subject:      state.PeerCertificates[0].Subject.String(),
		Address:      address,
	}, nil
}

// peerFrom is PeerOf of the gRPC connection that ctx belongs to.
func peerFrom(ctx context.Context) (Peer, error) {
	connection, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}, fmt.Errorf("%w: there is no gRPC connection", ErrUnauthenticated)
	}
	var address string
	if connection.Addr != nil {
		address = connection.Addr.String()
	}
	info, ok := connection.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return PeerOf(nil, address)
	}
	return PeerOf(&info.State, address)
}

// validUntil returns when the last of the chains breaks. A chain breaks when the first of its certificates expires.
func validUntil(chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, certificate := range chain[1:] {
			if certificate.NotAfter.Before(end) {
				end = certificate.NotAfter
			}
		}
		if end.After(last) {
			last = end
		}
	}
	return last
}
