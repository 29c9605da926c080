package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// The files of Access.Folder, as Argo CD has them.
const (
	usernameFile = "auth_username"
	passwordFile = "auth"
)

// Access is how to get to the spoke's Redis.
type Access struct {
	// Address is host:port.
	Address string
	// TLS says that Redis speaks TLS, with a certificate of Roots: nil for the operating system's CAs.
	TLS   bool
	Roots *certs.Source
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool
	// Username and Password are for Redis; both empty if it wants none.
	Username, Password string
	// Folder, if it is set, holds them in files instead, which are read for each connection.
	Folder string
}

// Dial connects, without saying anything.
func (a Access) Dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", a.Address)
	if err != nil || !a.TLS {
		return raw, err
	}
	config, err := a.config()
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake with Redis at %s: %w", a.Address, err), raw.Close())
	}
	return secure, nil
}

// config returns the TLS configuration of one connection.
func (a Access) config() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(a.Address)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	config.InsecureSkipVerify = a.InsecureSkipVerify
	if a.Roots != nil {
		material, err := a.Roots.Current()
		if err != nil {
			return nil, err
		}
		config.RootCAs = material.Roots
	}
	return config, nil
}

// Credentials returns the user's name and password.
func (a Access) Credentials() (username, password string, err error) {
	if a.Folder == "" {
		return a.Username, a.Password, nil
	}
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(a.Folder, name))
		return strings.TrimSpace(string(text)), err
	}
	if username, err = read(usernameFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	password, err = read(passwordFile)
	return username, password, err
}

// Client returns a client, for the caller to close.
func (a Access) Client() *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: a.Address,
		// Whoever asks decides whether to ask again.
		DialerRetries: 1,
		Dialer:        func(ctx context.Context, _, _ string) (net.Conn, error) { return a.Dial(ctx) },
		CredentialsProviderContext: func(context.Context) (string, string, error) {
			return a.Credentials()
		},
	})
}
