// Package redistest starts a real Redis for a test.
package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
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
	dir := tb.TempDir()
	return StartArgs(tb, func(port string) []string {
		return append([]string{
			"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir, "--enable-debug-command", "yes",
		}, args...)
	})
}

// StartArgs is Start with all arguments, for a free port.
func StartArgs(tb testing.TB, args func(port string) []string) *Redis {
	tb.Helper()
	_, err := exec.LookPath("redis-server")
	require.NoError(tb, err, "these tests need redis-server: apt-get install redis-server")
	for range 20 {
		// Below the ports that the system gives to clients: one of theirs could be taken while a Redis restarts.
		port := strconv.Itoa(20_000 + rand.N(12_000)) //nolint:gosec // any will do
		r := &Redis{t: tb, Address: net.JoinHostPort("127.0.0.1", port), args: args(port)}
		if r.start() {
			tb.Cleanup(r.Stop)
			return r
		}
	}
	require.FailNow(tb, "redis-server did not start on any port")
	return nil
}

// StartTLS starts a Redis that speaks TLS alone, with these files as its certificate, its key and its CA, and more arguments.
func StartTLS(tb testing.TB, cert, key, ca string, args ...string) *Redis {
	tb.Helper()
	r := Start(tb, append([]string{"--tls-auth-clients", "no", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca}, args...)...)
	r.Stop()
	r.args = append(r.args, "--tls-port", r.args[1])
	r.args[1] = "0"
	r.Resume()
	return r
}

// Trust returns the TLS configuration of a client that trusts the CA in a file.
func Trust(tb testing.TB, ca string) *tls.Config {
	tb.Helper()
	pem, err := os.ReadFile(ca)
	require.NoError(tb, err)
	roots := x509.NewCertPool()
	require.True(tb, roots.AppendCertsFromPEM(pem))
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// Resume starts it again, with nothing in it.
func (r *Redis) Resume() {
	r.t.Helper()
	require.True(r.t, r.start(), "redis-server did not start again")
}

// start starts it, and reports whether it accepts connections.
func (r *Redis) start() bool {
	r.t.Helper()
	r.run = exec.CommandContext(context.WithoutCancel(r.t.Context()), "redis-server", r.args...) //nolint:gosec // the test's own arguments
	output, err := r.run.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, r.run.Start())
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return true
		}
	}
	r.Stop()
	return false
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
	const clientTimeout = 2 * time.Minute // a machine may stand still for longer than go-redis waits by itself
	o := &redis.Options{
		Addr: address, Protocol: protocol, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, PoolTimeout: clientTimeout,
	}
	for _, f := range change {
		f(o)
	}
	client := redis.NewClient(o)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
