// Package redistest is what the tests of redisproxy run against: a real Redis, agents that have one, and a roster.
package redistest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Redis is a redis-server of the test's own.
type Redis struct {
	Address string

	t    testing.TB
	args []string
	run  *exec.Cmd
}

// Start starts a Redis on a free port, which ends with the test.
func Start(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	_, err := exec.LookPath("redis-server")
	require.NoError(tb, err, "these tests need redis-server: apt-get install redis-server")
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	r := &Redis{t: tb, Address: listener.Addr().String()}
	require.NoError(tb, listener.Close())
	_, port, err := net.SplitHostPort(r.Address)
	require.NoError(tb, err)
	r.args = append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", tb.TempDir(), "--enable-debug-command", "yes",
	}, args...)
	r.Resume()
	tb.Cleanup(r.Stop)
	return r
}

// StartTLS starts a Redis that speaks TLS alone, with these files as its certificate, its key and its authority.
func StartTLS(tb testing.TB, cert, key, authority string) *Redis {
	tb.Helper()
	r := Start(tb, "--tls-auth-clients", "no", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority)
	r.Stop()
	r.args = append(r.args, "--tls-port", r.args[1])
	r.args[1] = "0"
	r.Resume()
	return r
}

// Trust returns the TLS configuration of a client that trusts the authority in a file.
func Trust(tb testing.TB, authority string) *tls.Config {
	tb.Helper()
	pem, err := os.ReadFile(authority)
	require.NoError(tb, err)
	roots := x509.NewCertPool()
	require.True(tb, roots.AppendCertsFromPEM(pem))
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// Resume starts it again, with nothing in it.
func (r *Redis) Resume() {
	r.t.Helper()
	var output bytes.Buffer
	r.run = exec.CommandContext(context.WithoutCancel(r.t.Context()), "redis-server", r.args...) //nolint:gosec // the test's own arguments
	r.run.Stdout = &output
	require.NoError(r.t, r.run.Start())
	require.Eventually(r.t, func() bool {
		conn, err := new(net.Dialer).DialContext(r.t.Context(), "tcp", r.Address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 10*time.Second, 10*time.Millisecond, "redis-server did not start: %s", &output)
}

// Stop ends it at once.
func (r *Redis) Stop() {
	if r.run == nil {
		return
	}
	_ = r.run.Process.Kill()
	_ = r.run.Wait() // killed: that is its error
	r.run = nil
}

// Client returns a client of an address that speaks a version of the protocol, and ends with the test.
func Client(tb testing.TB, address string, protocol int, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	o := &redis.Options{Addr: address, Protocol: protocol, MaxRetries: -1, ContextTimeoutEnabled: true}
	for _, f := range change {
		f(o)
	}
	client := redis.NewClient(o)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
