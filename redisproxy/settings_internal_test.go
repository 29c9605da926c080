package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// required are the flags without which nothing runs.
func required() []string {
	return []string{"--principal-client-cert=d", "--principal-client-key=e", "--principal-ca-path=f"}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	settingstest.Check(t, settingstest.Program{
		Declare:  func(set *settings.Set) { new(proxySettings).Declare(set) },
		Required: required(),
		Flags: map[string]settingstest.Flag{
			"spiffe-endpoint-socket":   {Want: "", Bad: []string{"agent.sock", "http://x"}},
			"principal-spiffe-id":      {Want: "", Bad: []string{"hub", "spiffe://HUB/x"}, Good: []string{"spiffe://hub.test/ns/argocd/sa/principal"}},
			"listen-host":              {Want: "want a host name", Bad: []string{"0.0.0.0:6379", "redis://hub"}},
			"listen-port":              {Want: "want", Bad: []string{"0", "65536", "redis"}},
			"metrics-host":             {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"healthz-host":             {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"metrics-tls-cert":         {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-tls-key":          {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-client-ca-path":   {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-port":             {Want: "want", Bad: []string{"-1", "http"}},
			"healthz-port":             {Want: "want", Bad: []string{"-1", "1.5"}},
			"pprof-port":               {Want: "want", Bad: []string{"-1", "yes"}},
			"log-level":                {Want: "want [component=]level", Bad: []string{"loud", "=info"}},
			"log-format":               {Want: "want one of text, json", Bad: []string{"xml"}},
			"cache-size":               {Want: "want", Bad: []string{"-1", "64MiB"}},
			"max-value-size":           {Want: "want", Bad: []string{"0", "-1", "128MiB"}},
			"max-value-memory":         {Want: "want", Bad: []string{"0", "-1", "256MiB"}},
			"agent-timeout":            {Want: "want at least 100ms", Bad: []string{"0", "1ms", "-1s"}},
			"redis-address":            {Want: "want", Bad: []string{"", "redis", ":6379", "redis:x", "redis:0"}},
			"principal-address":        {Want: "want", Bad: []string{"", "hub:8443", "dns:///", "dns://hub", "dns://a b/hub", "dns:///hub:8443", "unix:", "ftp:///hub"}, Good: []string{"dns:///hub", "dns://10.0.0.10:5353/hub", "dns://resolver/hub", "xds:///hub", "unix:/run/envoy.sock"}},
			"agent-domain":             {Want: "", Bad: []string{"Agents"}},
			"principal-port":           {Want: "want", Bad: []string{"0", "x"}},
			"principal-client-cert":    {Want: "want a value", Bad: []string{""}},
			"principal-client-key":     {Want: "want a value", Bad: []string{""}},
			"principal-ca-path":        {Want: "want a value", Bad: []string{""}},
			"keep-alive-ping-interval": {Want: "want at least 10s", Bad: []string{"1s"}},
		},
		Any: []string{"tls-cert", "tls-key", "redis-key-prefix", "redis-ca-path"},
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	settingstest.Help(t, newCommand(nil))
}

func TestSettingsThatBelongTogether(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--tls-cert=a", "--tls-key=b", "--redis-ca-path=c", "--redis-tls-insecure"} {
		name, _, _ := strings.Cut(flag, "=")
		require.ErrorContains(t, settingstest.Parse(new(proxySettings).Declare, nil, append(required(), flag)...), name)
	}
}

// listening is a log that signals when the program listens, and where.
type listening chan string

// Write is called by one handler, which has a lock.
func (l listening) Write(line []byte) (int, error) {
	if _, rest, ok := strings.Cut(string(line), `msg="Listening for Redis clients" address=`); ok {
		address, _, _ := strings.Cut(rest, " ")
		l <- address
	}
	return len(line), nil
}

// The program starts with nothing but its settings, serves the hub's Redis over TLS on both sides, and ends when it is told
// to. There is no principal yet.
func TestProgramRunsUntilContextEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := ca.IssueServer(pki.ServerOptions{Names: []string{"localhost"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	caFile, cert, key := file("ca", ca.PEM().Certificate), file("cert", pair.Certificate), file("key", pair.Key)
	hub := redistest.StartTLS(t, cert, key, caFile)
	s := &proxySettings{}
	require.NoError(t, settingstest.Parse(s.Declare, nil, []string{
		"--principal-client-cert=" + cert, "--principal-client-key=" + key, "--principal-ca-path=" + caFile, "--principal-address=localhost", "--principal-port=1",
		"--metrics-port=0", "--healthz-port=0", "--listen-host=127.0.0.1", "--tls-cert=" + cert, "--tls-key=" + key,
		"--redis-address=" + hub.Address, "--redis-tls-enabled", "--redis-ca-path=" + caFile,
	}...))
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
	client := redistest.Client(t, address, 3, func(o *redis.Options) { o.TLSConfig = redistest.Trust(t, caFile) })
	require.Eventually(t, func() bool { return client.Set(ctx, "a", "1", 0).Err() == nil }, 2*time.Minute, 10*time.Millisecond)
	require.Equal(t, "1", client.Get(ctx, "a").Val())
	stop()
	require.NoError(t, <-ended)
}
