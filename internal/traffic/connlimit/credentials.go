package connlimit

import (
	"crypto/x509"
	"net"

	"google.golang.org/grpc/credentials"
)

// Credentials are those of a gRPC server whose connections a Limit counts. A connection has a place among those whose clients have authenticated
// from the end of its handshake on, if the client has presented a certificate there, or if there is no TLS and whoever is before the server has
// authenticated it.
func Credentials(of credentials.TransportCredentials) credentials.TransportCredentials {
	return admitting{of}
}

type admitting struct {
	credentials.TransportCredentials
}

// ServerHandshake implements [credentials.TransportCredentials].
func (a admitting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := a.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // gRPC's own
	}
	counted, is := raw.(*Conn)
	if !is {
		return conn, info, nil
	}
	var certificate *x509.Certificate
	if secure, ok := info.(credentials.TLSInfo); ok {
		if len(secure.State.PeerCertificates) == 0 {
			return conn, info, nil
		}
		certificate = secure.State.PeerCertificates[0]
	}
	if err := counted.Admit(certificate); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (a admitting) Clone() credentials.TransportCredentials {
	return admitting{a.TransportCredentials.Clone()}
}
