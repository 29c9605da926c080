package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Method is how a peer proves who it is.
type Method string

// The methods.
const (
	// MTLS is the client certificate of the TLS connection.
	MTLS Method = "mtls"
	// XFCC is what a trusted proxy says of its own client's certificate, in the header x-forwarded-client-cert.
	XFCC Method = "xfcc"
	// JWTSVID is a JWT-SVID in the metadata of a stream, where a load balancer ends TLS.
	JWTSVID Method = "jwt-svid"
)

// ErrUnauthenticated is wrapped by errors about peers that do not prove who they are.
var ErrUnauthenticated = errors.New("peer identity")

// Proof is what a peer has shown of itself. A Trust says whether it is good, now.
type Proof struct {
	Method Method
	// Certificates are what the other end of the TLS connection presented, its own first: that of the peer or, by XFCC, of the proxy
	// that vouches for it. There are none if the proxy is next to us, and speaks plain text.
	Certificates []*x509.Certificate
	// URIs are what the peer's certificate has among its alternative names. A SPIFFE ID has to be the only one.
	URIs []string
	// Subject is that of the peer's certificate, for messages. By XFCC it may be empty.
	Subject string
	// Fingerprint is the SHA-256 digest of the peer's certificate, in lower-case hex. By XFCC it may be empty.
	Fingerprint string
	// NotAfter is when the proof ends: no stream may outlive it. It is when the certificate expires, or a CA that it depends on,
	// whichever is first.
	NotAfter time.Time
	// Address is where the connection comes from. It proves nothing.
	Address string
	// Token is the JWT-SVID. It is a secret until it expires.
	Token string
	// Session is which streams of the peer belong together; empty if it does not say.
	Session Session
}

// Certified is the proof by certificates, the peer's own first. They are not verified here, and NotAfter is that of the peer's own.
func Certified(certificates []*x509.Certificate) Proof {
	leaf := certificates[0]
	digest := sha256.Sum256(leaf.Raw)
	proof := Proof{
		Method: MTLS, Certificates: certificates, Subject: leaf.Subject.String(), Fingerprint: hex.EncodeToString(digest[:]), NotAfter: leaf.NotAfter,
	}
	for _, id := range leaf.URIs {
		proof.URIs = append(proof.URIs, id.String())
	}
	return proof
}

// certified is the proof by a TLS connection.
func certified(state *tls.ConnectionState, address string) (Proof, error) {
	if len(state.VerifiedChains) == 0 {
		return Proof{}, fmt.Errorf("%w: the connection from %s brought no verified client certificate: configure one on the client",
			ErrUnauthenticated, address)
	}
	proof := Certified(state.PeerCertificates)
	proof.NotAfter, proof.Address = validUntil(state.VerifiedChains), address
	return proof, nil
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

// leaf is the peer's own certificate, nil if a proxy vouches for it.
func (p Proof) leaf() *x509.Certificate {
	if p.Method != MTLS || len(p.Certificates) == 0 {
		return nil
	}
	return p.Certificates[0]
}

// URI returns the one URI, such as a SPIFFE ID, that the peer is known by.
func (p Proof) URI() (string, error) {
	switch len(p.URIs) {
	case 1:
		return p.URIs[0], nil
	case 0:
		return "", errors.New("it has no URI among its alternative names: issue it with one")
	default:
		return "", fmt.Errorf("it has %d URIs among its alternative names: issue it with one", len(p.URIs))
	}
}

// Name is what logs call the peer, and what tells it from others: its URI, or else its subject. Issuers such as SPIRE give all workloads
// the same subject. By XFCC it may be empty.
func (p Proof) Name() string {
	if len(p.URIs) > 0 {
		return p.URIs[0]
	}
	return p.Subject
}

// String describes the peer's certificate in messages.
func (p Proof) String() string {
	if p.Method == JWTSVID {
		return fmt.Sprintf("JWT-SVID of %q", p.Name())
	}
	if p.Method == XFCC {
		return fmt.Sprintf("client certificate %q, by the header x-forwarded-client-cert", shorten(p.Name(), maxShownID))
	}
	if leaf := p.leaf(); leaf != nil && leaf.Subject.CommonName != "" {
		return fmt.Sprintf("client certificate %q", p.Subject)
	}
	return fmt.Sprintf("client certificate %q", p.Name())
}
