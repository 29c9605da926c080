package ops

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSFiles are where a server's certificate is. They are read at each handshake, which are few, so that a renewal needs no more.
type TLSFiles struct {
	// Cert and Key are the server's; without them there is no TLS.
	Cert, Key string
	// ClientCA, if set, is what clients' certificates must come from.
	ClientCA string
}

// config returns the configuration of a server, nil for one without TLS.
func (f TLSFiles) config() *tls.Config {
	if f.Cert == "" {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.read() },
	}
}

// read reads the files.
func (f TLSFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientAuth, config.ClientCAs, config.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, x509.NewCertPool(), true
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", f.ClientCA)
	}
	return config, nil
}
