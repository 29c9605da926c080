package gateway_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// Callers could otherwise create any number of series.
func TestUnknownAgentsHaveNoSeries(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.agent(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "a")
	})
	h.away["b"] = tunnel.ErrNotConnected
	client := h.client(t, allAgents, true)
	client.Timeout = testTimeout
	h.get(t, client, "/agents/a/api")
	h.get(t, client, "/agents/b/api")
	for i := range 20 {
		h.get(t, client, fmt.Sprintf("/agents/made-up-%d/api", i))
		do(t, client, h.request(t, fmt.Sprintf("MADEUP%d", i), "/agents/a/api", http.NoBody))
	}
	require.Equal(t, 1.0, h.counted(t, "argocd_kubeproxy_requests_total", "a", "2xx", "GET"))
	require.Equal(t, 20.0, h.counted(t, "argocd_kubeproxy_requests_total", "a", "2xx", "OTHER"))
	require.Equal(t, 20.0, h.counted(t, "argocd_kubeproxy_requests_total", "", "4xx", "GET"))
	require.Equal(t, 1.0, h.counted(t, "argocd_kubeproxy_requests_total", "", "5xx", "GET"))

	h.mu.Lock()
	delete(h.agents, "a")
	h.mu.Unlock()
	h.get(t, client, "/agents/a/api")
	require.Equal(t, 0.0, h.counted(t, "argocd_kubeproxy_requests_total", "a", "2xx", "GET"), "it is no more")
}

// The number of series is bounded, however many agents there are.
func TestAgentsBeyondTheLimitHaveNoSeries(t *testing.T) {
	t.Parallel()
	h := open(t)
	client := h.client(t, allAgents, true)
	client.Timeout = testTimeout
	for _, agent := range []string{"a", "b", "c"} {
		h.agent(t, agent, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, agent) })
		h.get(t, client, "/agents/"+agent+"/api")
	}
	for agent, want := range map[string]float64{"a": 1, "b": 1, "c": 0, "": 1} {
		require.Equal(t, want, h.counted(t, "argocd_kubeproxy_requests_total", agent, "2xx", "GET"), agent)
	}
}

func TestShutdownEndsWatches(t *testing.T) {
	t.Parallel()
	h := open(t)
	asked := make(chan struct{})
	h.agent(t, "a", func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	client := h.client(t, "a", true)
	r := h.request(t, http.MethodGet, "/api?watch=1", http.NoBody)
	type ending struct {
		code int
		err  error
	}
	ended := make(chan ending, 1)
	go func() {
		response, err := client.Do(r)
		if err != nil {
			ended <- ending{err: err}
			return
		}
		response.Body.Close()
		ended <- ending{code: response.StatusCode}
	}()
	<-asked
	began := time.Now()
	h.stop()
	require.NoError(t, <-h.stopped)
	took, how := time.Since(began), <-ended
	if how.err == nil || took < 2*time.Second { // else this machine stood still while the error was to be sent
		require.Equal(t, ending{code: http.StatusServiceUnavailable}, how)
	}
}
