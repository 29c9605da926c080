package upstream_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

const timeout = 2 * time.Minute

func ping(t *testing.T, o upstream.Options) string {
	t.Helper()
	conn, err := o.Dial(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	reply := make([]byte, 64)
	n, err := conn.Read(reply)
	require.NoError(t, err)
	return string(reply[:n])
}

func TestDial(t *testing.T) {
	t.Parallel()
	require.Equal(t, "+PONG\r\n", ping(t, upstream.Options{Address: redistest.Start(t).Address, Timeout: timeout}))
}

func TestDialTLS(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "redis"})
	require.NoError(t, err)
	pair, err := ca.IssueServer(pki.ServerOptions{CommonName: "redis", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	folder := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	caFile := file("ca.crt", ca.PEM().Certificate)
	redis := redistest.StartTLS(t, file("tls.crt", pair.Certificate), file("tls.key", pair.Key), caFile)
	options := upstream.Options{Address: redis.Address, Timeout: timeout, TLS: func() (*tls.Config, error) { return redistest.Trust(t, caFile), nil }}
	require.Equal(t, "+PONG\r\n", ping(t, options))

	options.TLS = func() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil }
	_, err = options.Dial(t.Context())
	require.ErrorContains(t, err, "unknown authority")
	options.TLS = func() (*tls.Config, error) { return nil, errors.New("no CA file") }
	_, err = options.Dial(t.Context())
	require.ErrorContains(t, err, "TLS to the hub's Redis: no CA file")
}

func TestDialFails(t *testing.T) {
	t.Parallel()
	_, err := upstream.Options{Address: "127.0.0.1:1", Timeout: timeout}.Dial(t.Context())
	require.ErrorContains(t, err, "connect to the hub's Redis")
	_, err = upstream.Options{Address: "127.0.0.1:1"}.Dial(t.Context())
	require.ErrorContains(t, err, "timeout", "without a timeout there is no time")
}
