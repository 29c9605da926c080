package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
)

// ServerOptions says how a server uses a Source.
type ServerOptions struct {
	// Source must have both a Pair and Roots, or be Plaintext.
	Source *Source
	Policy Policy
	// ClientCertOptional lets clients in that present no certificate. Whoever serves them sees to it that they prove otherwise who they are.
	ClientCertOptional bool
}

// ServerTLS returns a configuration for a server that requires clients to present a certificate, unless the options say otherwise, verified
// against the CAs trusted at the time of each handshake. Session tickets are off, because Go does not verify certificates
// again when a session is resumed. It is nil for plain text.
func ServerTLS(options ServerOptions) *tls.Config {
	if options.Source.Plaintext() {
		return nil
	}
	return serverConfig(options, options.Source.Current)
}

func serverConfig(options ServerOptions, current func() (Material, error)) *tls.Config {
	config := options.Policy.config()
	config.SessionTicketsDisabled = true
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if options.ClientCertOptional {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		material, err := current()
		if err != nil {
			return nil, materialError{err}
		}
		if material.Certificate == nil || material.Roots == nil {
			return nil, materialError{errors.New("a server needs a certificate and trusted CAs: configure both")}
		}
		fresh := base.Clone()
		fresh.Certificates = []tls.Certificate{*material.Certificate}
		fresh.ClientCAs = material.Roots
		if material.Bundles != nil {
			// The chain was verified by all CAs of all trust domains.
			fresh.VerifyConnection = func(state tls.ConnectionState) error {
				if len(state.PeerCertificates) == 0 {
					return nil // there need not be one
				}
				if err := verifySVID(state.PeerCertificates, material.Bundles); err != nil {
					return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
				}
				return nil
			}
		}
		return fresh, nil
	}
	return config
}

// serverCredentials does TLS handshakes for a gRPC server, and logs and counts failures: gRPC itself does not report them.
type serverCredentials struct {
	credentials.TransportCredentials // with no material: it answers everything but handshakes

	options ServerOptions
	logger  *slog.Logger // rate-limited; all failures are counted
}

// ServerCredentials returns gRPC credentials that work like ServerTLS. Failed handshakes are counted, and
// logged by the Source's logger with their cause.
func ServerCredentials(options ServerOptions) credentials.TransportCredentials {
	if options.Source.Plaintext() {
		return insecure.NewCredentials()
	}
	return &serverCredentials{
		TransportCredentials: credentials.NewTLS(ServerTLS(options)),
		options:              options,
		logger:               logging.Limited(options.Source.logger),
	}
}

// ServerHandshake returns a *HandshakeError when it fails.
func (c *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	ours := serverSide()
	// The explanation must speak of the very material that the handshake used.
	current := func() (material Material, err error) {
		ours.material, err = c.options.Source.Current()
		return ours.material, err
	}
	conn, info, err := credentials.NewTLS(serverConfig(c.options, current)).ServerHandshake(raw)
	if err == nil {
		return conn, info, nil
	}
	err = ours.explain(err)
	c.reportFailure(raw.RemoteAddr(), err)
	return nil, nil, err
}

// serverSide is a server's end of a handshake, without material.
func serverSide() side {
	return side{
		peer:    "client certificate",
		own:     "our server certificate",
		missing: "the client presented no certificate: configure one on its side",
	}
}

// VerifyClient returns nil as long as a client that presented these certificates, its own first, would be accepted if it
// came now, and otherwise why it would not. Connections outlive handshakes, so whoever keeps one asks after each change.
func (s *Source) VerifyClient(presented []*x509.Certificate) error {
	ours := serverSide()
	var err error
	if ours.material, err = s.Current(); err != nil {
		return err
	}
	if ours.material.Roots == nil || len(presented) == 0 {
		return errors.New("verify a client: it needs a certificate, and this side needs trusted CAs: configure both")
	}
	options := x509.VerifyOptions{
		Roots: ours.material.Roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, certificate := range presented[1:] {
		options.Intermediates.AddCert(certificate)
	}
	_, err = presented[0].Verify(options)
	if err == nil && ours.material.Bundles != nil {
		err = verifySVID(presented, ours.material.Bundles)
	}
	if err != nil {
		failure := ours.explainVerification(&tls.CertificateVerificationError{UnverifiedCertificates: presented, Err: err})
		return errors.New(failure.explanation())
	}
	return nil
}

// reportFailure counts and logs a failed handshake. It does not log peers that merely hang up: health checks do.
func (c *serverCredentials) reportFailure(peer net.Addr, err error) {
	reason := Other
	if explained := new(HandshakeError); errors.As(err, &explained) {
		reason = explained.Reason
	}
	source := c.options.Source
	source.metrics.failures.WithLabelValues(source.name, string(reason)).Inc()
	if reason != Disconnected {
		c.logger.Warn("TLS handshake failed", "peer", peer.String(), "reason", string(reason), "error", err)
	}
}

// Clone returns an independent copy.
func (c *serverCredentials) Clone() credentials.TransportCredentials {
	return ServerCredentials(c.options)
}
