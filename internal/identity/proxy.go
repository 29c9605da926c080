package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
)

// proxied is how long a proof by a proxy holds that does not say when its client's certificate expires. Envoy says it if "cert" is set in
// set_current_client_cert_details; Istio does not set it, and its certificates are for a day.
const proxied = 24 * time.Hour

// Proxies are who is believed what it says of its own clients in the header x-forwarded-client-cert: Envoy, such as a sidecar or an
// ingress gateway. The header counts from nobody else. The zero value believes nobody.
type Proxies struct {
	// Local believes whoever connects without TLS from this machine or Pod: by a loopback address, or a Unix socket.
	Local bool
	// Socket is the path of a Unix socket to listen on, with Local; empty for TCP.
	Socket string
	// IDs are the SPIFFE IDs of proxies that connect by mutual TLS: to us or, with Hop, to another proxy.
	IDs []string
	// Hop is how many proxies there may be in a row, each of which appends an element to the header: 1 is the one that connects, 2 that and its
	// client. The first element counts, and all others have to be of the proxies; with 0 there may be one. Who is in front of the first proxy cannot
	// put elements there, but by a URI with a comma in its certificate, which Envoy does not quote: so each element has to be written by whom the next
	// one is of, if it says by whom. Proxies that have a SPIFFE ID do.
	Hop int
}

// Connection is what a proof is read from.
type Connection struct {
	// TLS is nil for plain text.
	TLS *tls.ConnectionState
	// Address is where it comes from.
	Address net.Addr
	// Header has what x-forwarded-client-cert of this stream or request says, an entry for each time that it is there. It is never that of
	// another one: proxies send those of different clients over the same connection.
	Header []string
}

// connectionOf is the connection, and the header, of the gRPC stream that ctx belongs to.
func connectionOf(ctx context.Context) (Connection, error) {
	remote, ok := peer.FromContext(ctx)
	if !ok {
		return Connection{}, fmt.Errorf("%w: there is no gRPC connection", ErrUnauthenticated)
	}
	c := Connection{Address: remote.Addr, Header: metadata.ValueFromIncomingContext(ctx, xfcc.Header)}
	if info, ok := remote.AuthInfo.(credentials.TLSInfo); ok {
		c.TLS = &info.State
	}
	return c, nil
}

// Prove returns what the peer of a connection has shown of itself. Its errors wrap ErrUnauthenticated.
func (p Proxies) Prove(c Connection) (Proof, error) {
	var address string
	if c.Address != nil {
		address = c.Address.String()
	}
	if c.TLS == nil {
		if !p.Local || !Loopback(c.Address) {
			return Proof{}, fmt.Errorf("%w: the connection from %s does not use TLS: certificates cannot prove anything on it", ErrUnauthenticated, address)
		}
		return p.vouched(c, Proof{Address: address})
	}
	direct, err := certified(c.TLS, address)
	if err != nil {
		return Proof{}, err
	}
	if id, err := direct.URI(); err == nil && slices.Contains(p.IDs, id) {
		return p.vouched(c, direct)
	}
	if len(c.Header) > 0 {
		return Proof{}, fmt.Errorf("%w: %s from %s came with the header %s, which counts only from a trusted proxy: "+
			"name its SPIFFE ID in the setting --trusted-proxies, or connect without the header", ErrUnauthenticated, direct, address, xfcc.Header)
	}
	return direct, nil
}

// vouched is the proof of the peer that a proxy vouches for. by is what is known of the proxy.
func (p Proxies) vouched(c Connection, by Proof) (Proof, error) {
	element, err := p.element(c.Header)
	if err != nil {
		return Proof{}, fmt.Errorf("%w: header %s of the connection from %s: %w", ErrUnauthenticated, xfcc.Header, by.Address, err)
	}
	proof := Proof{
		Method: XFCC, Certificates: by.Certificates, URIs: element.URI, Subject: element.Subject, Fingerprint: element.Hash,
		NotAfter: time.Now().Add(proxied), Address: by.Address,
	}
	if x := element.Certificate; x != nil {
		if time.Now().After(x.NotAfter) {
			// Envoy shows the certificate that it had when it opened the connection, also after it has got a newer one.
			return Proof{}, fmt.Errorf("%w: header %s of the connection from %s: the certificate in it expired at %s: "+
				"renew it, or have the client's own proxy open new connections in time, by Envoy's max_connection_duration",
				ErrUnauthenticated, xfcc.Header, by.Address, x.NotAfter.UTC().Format(time.RFC3339))
		}
		proof.NotAfter = x.NotAfter
	}
	if len(by.Certificates) > 0 && by.NotAfter.Before(proof.NotAfter) {
		proof.NotAfter = by.NotAfter
	}
	return proof, nil
}

// element returns the one that counts.
func (p Proxies) element(header []string) (xfcc.Element, error) {
	switch {
	case len(header) == 0:
		return xfcc.Element{}, errors.New("there is none: have the proxy ask its clients for certificates, and set forward_client_cert_details to SANITIZE_SET")
	case len(header) > 1:
		return xfcc.Element{}, fmt.Errorf("there are %d: have the proxy replace what its clients send, by SANITIZE_SET", len(header))
	}
	elements, err := xfcc.Parse(header[0])
	switch {
	case err != nil:
		return xfcc.Element{}, err
	case p.Hop == 0 && len(elements) > 1:
		return xfcc.Element{}, fmt.Errorf("it has %d elements: have the proxy replace what its clients send, by SANITIZE_SET, or say which counts by the setting --xfcc-hop",
			len(elements))
	case p.Hop > 0 && len(elements) > p.Hop:
		return xfcc.Element{}, fmt.Errorf("it has %d elements, and the setting --xfcc-hop allows %d: have the first proxy replace what its clients send, "+
			"by SANITIZE_SET, and each of the others append to it, by APPEND_FORWARD", len(elements), p.Hop)
	}
	for i, element := range elements[1:] {
		if len(element.URI) != 1 || !slices.Contains(p.IDs, element.URI[0]) {
			return xfcc.Element{}, fmt.Errorf("it has %d elements, and one but the first is of %.300q, which is no trusted proxy: "+
				"name the SPIFFE IDs of all proxies in the setting --trusted-proxies", len(elements), element.URI)
		}
		// A gateway that shows its clients a certificate for a DNS name writes none. A sidecar always does, so the client of one cannot leave it out.
		if writer := elements[i].By; len(writer) > 0 && !slices.Equal(writer, element.URI) {
			return xfcc.Element{}, fmt.Errorf("an element is of the proxy %.300q, and the one before it was written by %.300q: that is not what proxies in a row write",
				element.URI, writer)
		}
	}
	return elements[0], nil
}

// Loopback reports whether an address is one that only this machine, or Pod, has: of the loopback interface, or a Unix socket. Istio's
// sidecar connects from 127.0.0.6. The address may be one that has more than its kind, as servers wrap them.
func Loopback(address net.Addr) bool {
	if address == nil {
		return false
	}
	switch address.Network() {
	case "unix":
		return true
	case "tcp":
		at, err := netip.ParseAddrPort(address.String())
		return err == nil && at.Addr().Unmap().IsLoopback()
	default:
		return false
	}
}
