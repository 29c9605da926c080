package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

func nothing(string) (string, bool) { return "", false }

// required are the flags without which nothing runs.
func required() []string {
	return []string{"--principal-client-cert=d", "--principal-client-key=e", "--principal-ca-path=f"}
}

func TestEveryFlagWithABadValueSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for flag, c := range map[string]struct {
		variable, want string
		values         []string
	}{
		"listen-host":              {"ARGOCD_REDISPROXY_LISTEN_HOST", "want a host name", []string{"0.0.0.0:6379", "redis://hub"}},
		"listen-port":              {"ARGOCD_REDISPROXY_LISTEN_PORT", "want", []string{"0", "65536", "redis"}},
		"metrics-port":             {"ARGOCD_REDISPROXY_METRICS_PORT", "want", []string{"-1", "http"}},
		"healthz-port":             {"ARGOCD_REDISPROXY_HEALTH_CHECK_PORT", "want", []string{"-1", "1.5"}},
		"pprof-port":               {"ARGOCD_REDISPROXY_PPROF_PORT", "want", []string{"-1", "yes"}},
		"log-level":                {"ARGOCD_REDISPROXY_LOG_LEVEL", "want [component=]level", []string{"loud", "=info"}},
		"log-format":               {"ARGOCD_REDISPROXY_LOG_FORMAT", "want one of text, json", []string{"xml"}},
		"cache-size":               {"ARGOCD_REDISPROXY_CACHE_SIZE", "want", []string{"-1", "64MiB"}},
		"agent-timeout":            {"ARGOCD_REDISPROXY_AGENT_TIMEOUT", "want at least 100ms", []string{"0", "1ms", "-1s"}},
		"redis-address":            {"ARGOCD_REDISPROXY_REDIS_ADDRESS", "want", []string{"", "redis", ":6379", "redis:x", "redis:0"}},
		"redis-tls-enabled":        {"ARGOCD_REDISPROXY_REDIS_TLS_ENABLED", "want true or false", []string{"maybe"}},
		"redis-tls-insecure":       {"ARGOCD_REDISPROXY_REDIS_TLS_INSECURE", "want true or false", []string{"maybe"}},
		"principal-address":        {"ARGOCD_REDISPROXY_PRINCIPAL_ADDRESS", "want", []string{"", "hub:8443"}},
		"principal-port":           {"ARGOCD_REDISPROXY_PRINCIPAL_PORT", "want", []string{"0", "x"}},
		"principal-client-cert":    {"ARGOCD_REDISPROXY_PRINCIPAL_CLIENT_CERT_PATH", "want a value", []string{""}},
		"principal-client-key":     {"ARGOCD_REDISPROXY_PRINCIPAL_CLIENT_KEY_PATH", "want a value", []string{""}},
		"principal-ca-path":        {"ARGOCD_REDISPROXY_PRINCIPAL_ROOT_CA_PATH", "want a value", []string{""}},
		"keep-alive-ping-interval": {"ARGOCD_REDISPROXY_KEEP_ALIVE_PING_INTERVAL", "want at least 10s", []string{"1s"}},
	} {
		for _, value := range c.values {
			_, err := readSettings(append(required(), "--"+flag+"="+value), nothing)
			require.ErrorContains(t, err, "--"+flag+" or "+c.variable)
			require.ErrorContains(t, err, c.want)
			if value == "" {
				continue
			}
			_, err = readSettings(required(), func(name string) (string, bool) { return value, name == c.variable })
			require.ErrorContains(t, err, "--"+flag+" or "+c.variable)
		}
	}
}

func TestSettingsThatBelongTogether(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--tls-cert=a", "--tls-key=b", "--redis-ca-path=c", "--redis-tls-insecure"} {
		_, err := readSettings(append(required(), flag), nothing)
		name, _, _ := strings.Cut(flag, "=")
		require.ErrorContains(t, err, name)
	}
}

func TestEveryFlagHasAVariable(t *testing.T) {
	t.Parallel()
	s, err := readSettings(required(), nothing)
	require.NoError(t, err)
	require.Equal(t, 6379, s.listenPort)
	require.Equal(t, "argocd-redis:6379", s.redis.address)
	require.Equal(t, 64, s.cacheSize)
	require.Equal(t, 10*time.Second, s.agentTimeout)
	for _, line := range regexp.MustCompile(`(?m)^ +(-\w, )?--[^\n]+`).FindAllString(s.help, -1) {
		require.Contains(t, line, "[ARGOCD_REDISPROXY_", line)
	}
	_, err = readSettings(nil, nothing)
	require.ErrorContains(t, err, "--principal-ca-path")
}

// listening is a log that tells when the program listens, and where.
type listening chan string

// Write is called by one handler, which has a lock.
func (l listening) Write(line []byte) (int, error) {
	if _, rest, ok := strings.Cut(string(line), `msg="Listen for clients" address=`); ok {
		address, _, _ := strings.Cut(rest, " ")
		l <- address
	}
	return len(line), nil
}

// The program begins with nothing but its settings, serves the hub's Redis over TLS on both sides, and ends when it is told
// to. There is no principal yet.
func TestItRunsAndEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority, err := pki.NewAuthority(pki.AuthorityOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := authority.IssueServer(pki.ServerOptions{Names: []string{"localhost"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	ca, cert, key := file("ca", authority.PEM().Certificate), file("cert", pair.Certificate), file("key", pair.Key)
	hub := redistest.StartTLS(t, cert, key, ca)
	s, err := readSettings([]string{
		"--principal-client-cert=" + cert, "--principal-client-key=" + key, "--principal-ca-path=" + ca, "--principal-address=localhost", "--principal-port=1",
		"--metrics-port=0", "--healthz-port=0", "--listen-host=127.0.0.1", "--tls-cert=" + cert, "--tls-key=" + key,
		"--redis-address=" + hub.Address, "--redis-tls-enabled", "--redis-ca-path=" + ca,
	}, nothing)
	require.NoError(t, err)
	s.listenPort = 0 // any that is free
	heard := make(listening, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, io.MultiWriter(heard, t.Output())) }()
	var address string
	select {
	case address = <-heard:
	case err := <-ended:
		require.NoError(t, err)
	}
	client := redistest.Client(t, address, 3, func(o *redis.Options) { o.TLSConfig = redistest.Trust(t, ca) })
	require.Eventually(t, func() bool { return client.Set(ctx, "a", "1", 0).Err() == nil }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "1", client.Get(ctx, "a").Val())
	stop()
	require.NoError(t, <-ended)
}
