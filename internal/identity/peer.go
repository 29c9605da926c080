package identity

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Peer is who is at the other end of a connection, and what proved it.
type Peer struct {
	// Agent is the peer's name.
	Agent Agent
	// NotAfter is when the proof ends: no stream may outlive it. It is when the certificate expires, or an authority
	// that it depends on, whichever is first.
	NotAfter time.Time
	// Fingerprint is the SHA-256 of the peer's certificate (DER) in lower-case hexadecimal digits.
	Fingerprint string
	// Subject is the certificate's subject, and URI its one URI, if it has exactly one. They are for people to read.
	Subject string
	URI     string
	// Address is where the connection comes from. It proves nothing.
	Address string
}

// ErrUnproven is wrapped by errors about peers that have not proven who they are, by whatever name.
var ErrUnproven = errors.New("peer identity")

// verified returns the certificate chains that TLS has verified for the connection of ctx, and its remote address.
func verified(ctx context.Context) (chains [][]*x509.Certificate, address string, err error) {
	connection, ok := peer.FromContext(ctx)
	if !ok {
		return nil, "", fmt.Errorf("%w: there is no gRPC connection", ErrUnproven)
	}
	if connection.Addr != nil {
		address = connection.Addr.String()
	}
	info, ok := connection.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, address, fmt.Errorf("%w: the connection from %s does not use TLS: certificates cannot prove anything on it", ErrUnproven, address)
	}
	if len(info.State.VerifiedChains) == 0 {
		return nil, address, fmt.Errorf("%w: the connection from %s brought no verified client certificate: configure one on the agent", ErrUnproven, address)
	}
	return info.State.VerifiedChains, address, nil
}

// describe returns what the chains prove, save for the agent's name.
func describe(chains [][]*x509.Certificate, address string) Peer {
	leaf := chains[0][0]
	sum := sha256.Sum256(leaf.Raw)
	described := Peer{
		NotAfter:    provenUntil(chains),
		Fingerprint: hex.EncodeToString(sum[:]),
		Subject:     leaf.Subject.String(),
		Address:     address,
	}
	if len(leaf.URIs) == 1 {
		described.URI = leaf.URIs[0].String()
	}
	return described
}

// provenUntil returns when the last of the chains breaks. A chain breaks when the first of its certificates expires.
func provenUntil(chains [][]*x509.Certificate) time.Time {
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
