package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// While the network of a spoke is cut the hub says so, shows what it knew last, and is not held up; what concerns another
// spoke goes on. Afterwards all is as before. It cuts what other tests need, so it runs alone.
func TestUIWhileSpokeIsDisconnected(t *testing.T) {
	here, away := newGuestbook(t, "b", "here"), newGuestbook(t, "a", "away")
	terminal := away.terminal(t)
	terminal.says(t, message{Operation: "stdin", Data: "echo the last $((1 + 1)) words\n"})
	terminal.shows(t, "the last 2 words")
	nodes := len(away.tree(t))

	agent := shared.Agent("a")
	mark := shared.Principal.Mark()
	agentMark := agent.Mark()
	agent.Principal.Cut()
	t.Cleanup(agent.Principal.Restore)
	saysNow(t, shared.Principal, mark, "An agent disconnected")

	require.Len(t, away.tree(t), nodes, "the last known tree stays visible")
	code, answer := tryAsk(t, away, "/resource", away.of("", "v1", "ConfigMap", "guestbook"))
	require.NotEqual(t, http.StatusOK, code)
	require.Contains(t, answer, "the agent is not connected", "nobody waits for it: it is known that it is away")
	require.Equal(t, "Failed", clusterState(t, "a"))

	here.readsAndEdits(t)
	here.readsLogs(t)
	require.Equal(t, "Successful", clusterState(t, "b"))

	agent.Principal.Restore()
	saysNow(t, agent, agentMark, lab.ConnectedAgentLine)
	away.hub.becomes(t, syncedAndHealthy)
	away.readsAndEdits(t)
	away.readsLogs(t)
	again := away.terminal(t)
	again.says(t, message{Operation: "stdin", Data: "echo and the next $((1 + 1))\n"})
	again.shows(t, "and the next 2")
	require.Equal(t, "Successful", clusterState(t, "a"))
}

// tryAsk asks argocd-server about a resource of an Application.
func tryAsk(t *testing.T, g *guestbook, path, query string) (code int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shared.Hub.ArgoCD.URL+"/api/v1/applications/"+
		g.declared.Name+path+"?appNamespace="+g.declared.Namespace+query, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// clusterState returns what argocd-server shows of an agent's cluster.
func clusterState(t *testing.T, agent string) string {
	t.Helper()
	for _, c := range clusters(t) {
		if c.Name == agent {
			return c.Info.ConnectionState.Status
		}
	}
	return "none"
}

// shownCluster is a cluster in argocd-server's list.
type shownCluster struct {
	Name string
	Info struct {
		ConnectionState   struct{ Status, Message string }
		ServerVersion     string
		ApplicationsCount int
		CacheInfo         struct{ ResourcesCount, APIsCount int }
	}
}

// clusters returns argocd-server's list of clusters.
func clusters(t *testing.T) []shownCluster {
	t.Helper()
	var list struct{ Items []shownCluster }
	require.NoError(t, json.NewDecoder(strings.NewReader(fetch(t, "/api/v1/clusters"))).Decode(&list))
	return list.Items
}
