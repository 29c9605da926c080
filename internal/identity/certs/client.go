package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// ClientOptions says how a client uses a Source.
type ClientOptions struct {
	// Source may lack a Pair, and then presents no certificate; or Roots, and then trusts the operating system's CAs.
	Source *Source
	Policy Policy
	// ServerID is the SPIFFE ID that the server has to have, instead of the name that it is dialled by. The zero ID is none.
	ServerID spiffeid.ID
	// Server, if set, returns nil if the server is the right one, by the certificates that it presented. They were verified, but for their
	// name, which does not count then.
	Server func(presented []*x509.Certificate) error
	// InsecureSkipVerify accepts any server. Our own certificate is presented all the same.
	InsecureSkipVerify bool
}

// clientCredentials does TLS handshakes for a gRPC client.
type clientCredentials struct {
	options ClientOptions
}

// ClientCredentials returns gRPC credentials that present and trust what is current at the time of each handshake.
// A failed handshake returns a *HandshakeError. With TLS 1.3 a client learns that its certificate was
// refused only when it first reads; that error is a *HandshakeError too.
func ClientCredentials(options ClientOptions) credentials.TransportCredentials {
	if options.Source.Plaintext() {
		return insecure.NewCredentials()
	}
	return &clientCredentials{options: options}
}

// Info tells gRPC the kind of security. The server's name is for ClientHandshake alone: it does not change what
// requests are addressed to.
func (c *clientCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// ClientHandshake checks the server's name: the host of the connection's :authority.
func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	ours := &side{peer: "server certificate", own: "our client certificate"}
	var err error
	if ours.material, err = c.options.Source.Current(); err != nil {
		return nil, nil, ours.explain(materialError{err})
	}
	ours.name = hostOf(authority)
	conn, info, err := credentials.NewTLS(c.config(ours)).ClientHandshake(ctx, authority, raw)
	if err != nil && ctx.Err() != nil {
		return nil, nil, err // the caller's deadline: nothing to explain
	}
	if err != nil {
		return nil, nil, ours.explain(err)
	}
	return &clientConn{Conn: conn, ours: ours}, info, nil
}

// config returns the configuration for one handshake.
func (c *clientCredentials) config(ours *side) *tls.Config {
	config := c.options.Policy.config()
	config.InsecureSkipVerify = c.options.InsecureSkipVerify
	config.RootCAs = ours.material.Roots
	check := c.options.Server
	if check == nil && !c.options.ServerID.IsZero() {
		check = hasID(c.options.ServerID)
	}
	if check != nil && !c.options.InsecureSkipVerify {
		config.InsecureSkipVerify = true // of its name: the rest is verified here
		config.VerifyConnection = func(state tls.ConnectionState) error {
			return verifyServer(state.PeerCertificates, ours.material, check)
		}
	}
	// Left to itself, crypto/tls presents nothing when the server does not list our CA, and the server could
	// only say that a certificate is missing. With ours it can report what is wrong with it.
	config.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		ours.accepted = request.AcceptableCAs
		if ours.material.Certificate == nil {
			return new(tls.Certificate), nil
		}
		return ours.material.Certificate, nil
	}
	return config
}

// wrongIDError means that a server has another SPIFFE ID than the one that was wanted.
type wrongIDError struct{ wanted spiffeid.ID }

func (e wrongIDError) Error() string { return fmt.Sprintf("its SPIFFE ID is not %s", e.wanted) }

// hasID returns what reports whether a server has that SPIFFE ID.
func hasID(want spiffeid.ID) func(presented []*x509.Certificate) error {
	return func(presented []*x509.Certificate) error {
		if id, err := x509svid.IDFromCert(presented[0]); err != nil || id != want {
			return wrongIDError{want}
		}
		return nil
	}
}

// VerifyServer returns nil if a server that presented these certificates, its own first, has that SPIFFE ID by one of these CAs, in PEM.
func VerifyServer(presented []*x509.Certificate, cas []byte, id spiffeid.ID) error {
	roots, err := ParseCertificates(cas)
	if err != nil {
		return fmt.Errorf("trusted CAs: %w", err)
	}
	for _, root := range roots {
		if !root.IsCA {
			return fmt.Errorf("trusted CAs: the certificate %s is not one of a CA", describe(root))
		}
	}
	if len(presented) == 0 {
		return errors.New("the server presented no certificate")
	}
	material := Material{Roots: rootsOf(roots).roots, CAs: roots}
	failure := new(HandshakeError)
	err = verifyServer(presented, material, hasID(id))
	if err != nil && errors.As(side{peer: "server certificate", material: material}.explain(err), &failure) {
		return errors.New(failure.explanation())
	}
	return err
}

// verifyServer returns nil if a server that presents these certificates is the right one, by a CA of ours.
func verifyServer(presented []*x509.Certificate, material Material, check func([]*x509.Certificate) error) error {
	options := x509.VerifyOptions{
		Roots: material.Roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, certificate := range presented[1:] {
		options.Intermediates.AddCert(certificate)
	}
	_, err := presented[0].Verify(options)
	if err == nil && material.Bundles != nil {
		err = verifySVID(presented, material.Bundles)
	}
	if err == nil {
		err = check(presented)
	}
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: presented, Err: err}
	}
	return nil
}

// ServerHandshake is not for clients.
func (c *clientCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("TLS handshake: client credentials cannot serve: use ServerCredentials")
}

// Clone returns an independent copy.
func (c *clientCredentials) Clone() credentials.TransportCredentials {
	return &clientCredentials{options: c.options}
}

// OverrideServerName is deprecated by gRPC, which does not call it.
func (c *clientCredentials) OverrideServerName(string) error {
	return errors.New("TLS handshake: the server's name is the one that is dialled: dial it by that name")
}

// clientConn explains the first read, if that is where the server's refusal arrives.
type clientConn struct {
	net.Conn
	ours     *side
	accepted atomic.Bool // the server has sent something, so it has accepted us
}

func (c *clientConn) Read(buffer []byte) (int, error) {
	n, err := c.Conn.Read(buffer)
	if n > 0 && !c.accepted.Load() {
		c.accepted.Store(true)
	}
	refusal := new(net.OpError)
	if err != nil && !c.accepted.Load() && errors.As(err, &refusal) && refusal.Op == "remote error" {
		err = c.ours.explain(err)
	}
	return n, err
}

// Write hides that a server hung up before it accepted us: its reason is there to be read, and gRPC, which always has a
// read under way, would otherwise report a broken pipe instead.
func (c *clientConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if err != nil && !c.accepted.Load() && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		return len(data), nil
	}
	return n, err
}

// hostOf returns the host of host:port, or the whole when there is no port.
func hostOf(authority string) string {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		return authority
	}
	return host
}
