package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// get reads a URL, on a connection of its own.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	status, body, err := readURL(ctx, url)
	require.NoError(t, err)
	return status, body
}

func readURL(ctx context.Context, url string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), errors.Join(err, response.Body.Close())
}

func requireReady(t *testing.T, health string) {
	t.Helper()
	status, body := get(t, health+"/readyz")
	require.Equal(t, http.StatusOK, status, "%s", body)
}

// requireNotReady fails unless a program lives, and says that it is not ready for these reasons.
func requireNotReady(t *testing.T, health string, reasons ...string) {
	t.Helper()
	status, body := get(t, health+"/healthz")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = get(t, health+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status, "%s", body)
	for _, reason := range reasons {
		require.Contains(t, body, reason)
	}
}

// Neither side calls itself dead because the other is away: to restart it would not help.
func TestHealthzIsIndependentOfPeer(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "lonely", lab.AgentOptions{Principal: principal}).connected(t)
	requireReady(t, principal.HealthURL)
	requireReady(t, s.agent.HealthURL)

	mark := s.agent.Mark()
	stopped(t, principal.Stop)
	saysNow(t, s.agent, mark, "Connection to principal failed; retrying")
	requireNotReady(t, s.agent.HealthURL, "applications: ready", "connection: not ready: ")

	start(t, principal.Start)
	saysNow(t, s.agent, mark, lab.ConnectedAgentLine)
	requireReady(t, s.agent.HealthURL)
	mark = principal.Mark()
	s.agent.Kill()
	saysNow(t, principal, mark, "An agent disconnected")
	requireReady(t, principal.HealthURL)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "measured", lab.AgentOptions{Principal: principal}).connected(t)
	app := s.newTwin("measured").create(t)
	app.arrives(t)
	app.spoke.edit(t, func(o *unstructured.Unstructured) { set(o, "Healthy", "status", "health", "status") })
	app.hub.becomes(t, has("Healthy", "status", "health", "status"))
	app.spoke.edit(t, label("mine", "yes"))
	app.spoke.becomes(t, labelled("mine", ""))
	says(t, s.agent, "Restored drifted replica object")

	shows(t, principal.MetricsURL,
		"argocd_principal_connected_agents 1",
		"argocd_principal_agent_connections_total 1",
		`argocd_principal_sync_dirty_keys{facet="application"} 0`,
		`argocd_principal_sync_dirty_keys{facet="application-intent"} 0`,
		`argocd_principal_sync_acks_total{facet="application",result="done"} 1`,
		`argocd_principal_sync_lag_seconds_count{facet="application"} 1`,
		"argocd_agent_certificate_not_after_timestamp_seconds", "argocd_agent_build_info",
		"go_goroutines", "process_resident_memory_bytes",
		`rest_client_requests_total{code="200",`, `workqueue_depth{name="intent-ids"}`,
		`grpc_server_started_total{grpc_method="Connect",grpc_service="`,
	)
	shows(t, s.agent.MetricsURL,
		"argocd_agent_connection_status 1",
		"argocd_agent_connections_total 1",
		`argocd_agent_sync_dirty_keys{facet="application-status"} 0`,
		`argocd_agent_sync_acks_total{facet="application-status",result="done"} `,
		`argocd_agent_sync_lag_seconds_bucket{facet="application-status",le="`,
		`argocd_agent_sync_repairs_total{facet="application",result="done"} 1`,
		`rest_client_requests_total{code="200",`, `grpc_client_started_total{grpc_method="Connect",grpc_service="`,
		"argocd_agent_certificate_not_after_timestamp_seconds", "argocd_agent_build_info",
		"go_goroutines", "process_resident_memory_bytes",
	)
}

// shows waits until a page of metrics has lines that begin so.
func shows(t *testing.T, url string, lines ...string) {
	t.Helper()
	var page string
	lacks := func(line string) bool { return !strings.Contains(page, "\n"+line) }
	if !assert.Eventually(t, func() bool {
		_, page = get(t, url)
		return !slices.ContainsFunc(lines, lacks)
	}, timeout, 100*time.Millisecond) {
		require.Empty(t, slices.DeleteFunc(lines, func(line string) bool { return !lacks(line) }), "%s", page)
	}
}

// Profiles show a program's memory, so they are for those who asked for them, on this machine.
func TestPprofListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for _, url := range []string{shared.Principal.HealthURL, shared.Agent("a").HealthURL} {
		status, _ := get(t, url+"/debug/pprof/")
		require.Equal(t, http.StatusNotFound, status)
	}
	for _, url := range []string{shared.Principal.MetricsURL, shared.Agent("a").MetricsURL} {
		status, _ := get(t, strings.TrimSuffix(url, "/metrics")+"/debug/pprof/")
		require.Equal(t, http.StatusNotFound, status)
	}
	port := freePort(t)
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--pprof-port=" + port}})
	requireProfiles(t, port)
	agents := freePort(t)
	newSite(t, "profiled", lab.AgentOptions{Principal: principal, Env: []string{"ARGOCD_AGENT_PPROF_PORT=" + agents}})
	requireProfiles(t, agents)
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := shared.Host.Port()
	require.NoError(t, err)
	return strconv.Itoa(port)
}

func requireProfiles(t *testing.T, port string) {
	t.Helper()
	status, body := get(t, "http://"+net.JoinHostPort("127.0.0.1", port)+"/debug/pprof/")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "goroutine")
	// All of 127.0.0.0/8 is this machine: one who listens everywhere listens there.
	var dialer net.Dialer
	_, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.2", port))
	require.Error(t, err)
}

// Whoever collects logs as JSON finds no other line among them.
func TestLogLevelAndFormat(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Env: []string{"ARGOCD_PRINCIPAL_LOG_FORMAT=json"}})
	name := unique("logged")
	s := startSite(t, name, lab.AgentOptions{
		Principal: principal, Args: []string{"--log-format=json", "--kubeconfig=" + impersonating(t, shared.Spoke("b"), name)},
	})
	says(t, s.agent, "forbidden")
	s.grant(t, "get", "list", "watch", "create", "patch")
	s.connected(t)
	app := s.newTwin("logged").create(t, finalize(cascadeFinalizer))
	app.arrives(t)
	app.hub.edit(t, finalize())
	app.spoke.becomes(t, finalized())
	stopped(t, s.agent.Stop)
	stopped(t, principal.Stop)
	for path, first := range map[string]string{
		principal.LogPath(): "An agent connected to the subscription stream", s.agent.LogPath(): "Starting to receive events from event stream",
	} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		found := false
		for line := range strings.Lines(string(data)) {
			var entry map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &entry), "%s", line)
			found = found || fmt.Sprint(entry["msg"]) == first
		}
		require.True(t, found, "%s", data)
	}
}
