package ops_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
)

const anyPort = "127.0.0.1:0"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// everything is a server with all endpoints on, at free ports.
func everything() ops.Options {
	return ops.Options{
		Health:   ops.Endpoint{Address: anyPort, Flag: "--healthz-port"},
		Metrics:  ops.Endpoint{Address: anyPort, Flag: "--metrics-port"},
		Profiles: ops.Endpoint{Address: anyPort, Flag: "--pprof-port"},
		Registry: ops.NewRegistry("v1.2.3", "abc"),
		Logger:   slog.New(slog.DiscardHandler),
	}
}

// running starts a server and stops it when the test ends, which it must do without an error.
func running(t *testing.T, options ops.Options) *ops.Server {
	t.Helper()
	server, err := ops.New(t.Context(), options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return server
}

// get asks once, on a connection of its own.
func get(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(read)
}

func TestHealthzIgnoresChecks(t *testing.T) {
	options := everything()
	options.Checks = []ops.Check{{Name: "connection", Ready: func(context.Context) error { return errors.New("hub is away") }}}
	status, body := get(t, running(t, options).HealthAddress(), "/healthz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\n", body)
}

func TestReadyzNamesFailingChecks(t *testing.T) {
	var connected atomic.Bool
	options := everything()
	options.Checks = []ops.Check{
		{Name: "caches", Ready: func(context.Context) error { return nil }},
		{Name: "connection", Ready: func(context.Context) error {
			if !connected.Load() {
				return errors.New("no principal at hub:443")
			}
			return nil
		}},
	}
	server := running(t, options)

	status, body := get(t, server.HealthAddress(), "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "caches: ready\nconnection: not ready: no principal at hub:443\n", body)

	connected.Store(true)
	status, body = get(t, server.HealthAddress(), "/readyz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "caches: ready\nconnection: ready\nok\n", body)
}

func TestReadyzWithHangingCheckNamesOthers(t *testing.T) {
	options := everything()
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	options.Checks = []ops.Check{
		{Name: "first", Ready: hang},
		{Name: "second", Ready: hang},
		{Name: "third", Ready: func(ctx context.Context) error { return ctx.Err() }},
	}
	status, body := get(t, running(t, options).HealthAddress(), "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "first: not ready: context deadline exceeded\nsecond: not ready: context deadline exceeded\nthird: ready\n", body)
}

func TestMetricsHaveBuildAndProcess(t *testing.T) {
	options := everything()
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "own_total", Help: "Own."})
	options.Registry.MustRegister(own)
	own.Add(3)
	status, body := get(t, running(t, options).MetricsAddress(), "/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `argocd_agent_build_info{git_revision="abc",version="v1.2.3"} 1`)
	require.Contains(t, body, "go_goroutines ")
	require.Contains(t, body, "process_resident_memory_bytes ")
	require.Contains(t, body, "own_total 3")
}

func TestPprofIsServed(t *testing.T) {
	server := running(t, everything())
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
		status, body := get(t, server.ProfilesAddress(), path)
		require.Equal(t, http.StatusOK, status, path)
		require.NotEmpty(t, body, path)
	}
}

func TestEndpointsAreOnSeparatePorts(t *testing.T) {
	server := running(t, everything())
	for address, paths := range map[string][]string{
		server.HealthAddress():   {"/", "/metrics", "/debug/pprof/"},
		server.MetricsAddress():  {"/", "/healthz", "/debug/pprof/"},
		server.ProfilesAddress(): {"/", "/healthz", "/metrics"},
	} {
		for _, path := range paths {
			status, _ := get(t, address, path)
			require.Equal(t, http.StatusNotFound, status, path)
		}
	}
}

func TestPprofOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "192.0.2.1:6060", "localhost.example:6060", "6060"} {
		options := everything()
		options.Profiles = ops.Endpoint{Address: address, Flag: "--pprof-port"}
		_, err := ops.New(t.Context(), options)
		require.ErrorContains(t, err, "--pprof-port: ", address)
	}
}

func TestPortInUseErrorNamesFlag(t *testing.T) {
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", anyPort)
	require.NoError(t, err)
	defer taken.Close()

	options := everything()
	options.Health.Address = taken.Addr().String()
	options.Metrics.Address = taken.Addr().String()
	_, err = ops.New(t.Context(), options)
	require.ErrorContains(t, err, "/healthz: listen tcp "+taken.Addr().String())
	require.ErrorContains(t, err, "choose another port with --healthz-port")
	require.ErrorContains(t, err, "choose another port with --metrics-port")
}

func TestNewFailureClosesPorts(t *testing.T) {
	first, err := ops.New(t.Context(), everything())
	require.NoError(t, err)
	options := everything()
	options.Health.Address, options.Metrics.Address = first.HealthAddress(), first.MetricsAddress()
	require.NoError(t, first.Close())

	broken := options
	broken.Profiles.Address = broken.Health.Address // cannot be had twice
	_, err = ops.New(t.Context(), broken)
	require.ErrorContains(t, err, "--pprof-port")

	again, err := ops.New(t.Context(), options)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestPortZeroDisablesEndpoint(t *testing.T) {
	options := everything()
	options.Health = ops.Port("--healthz-port", "", 0)
	options.Metrics = ops.Port("--metrics-port", "", 0)
	options.Profiles = ops.LoopbackPort("--pprof-port", 0)
	bubble.Test(t, func(t *testing.T) {
		server, err := ops.New(t.Context(), options)
		require.NoError(t, err)
		require.Empty(t, server.HealthAddress()+server.MetricsAddress()+server.ProfilesAddress())

		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		synctest.Wait()
		require.Empty(t, ended, "Run ended before its context")
		cancel()
		require.NoError(t, <-ended)
	})

	require.Equal(t, ":8003", ops.Port("--healthz-port", "", 8003).Address)
	require.Equal(t, "10.0.0.1:8000", ops.Port("--metrics-port", "10.0.0.1", 8000).Address)
	require.Equal(t, "127.0.0.1:6060", ops.LoopbackPort("--pprof-port", 6060).Address)
}

func TestRunDrainsOpenRequests(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	options := everything()
	options.Checks = []ops.Check{{Name: "slow", Ready: func(context.Context) error {
		close(asked)
		<-release
		return nil
	}}}
	server, err := ops.New(t.Context(), options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()

	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.HealthAddress())
	require.NoError(t, err)
	defer connection.Close()
	_, err = connection.Write([]byte("GET /readyz HTTP/1.1\r\nHost: ops\r\n\r\n"))
	require.NoError(t, err)
	<-asked
	cancel()
	close(release)
	answer, err := io.ReadAll(connection)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(answer, []byte("HTTP/1.1 200 OK")), string(answer))
	require.NoError(t, <-ended)
}
