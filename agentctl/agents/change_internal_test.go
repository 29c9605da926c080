package agents

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// An address keeps its form, unless what Argo CD proves itself by changes.
func TestServerFollowsWhatArgoCDProvesItselfBy(t *testing.T) {
	t.Parallel()
	const own, sidecar = "https://p:9090?agentName=berlin", "http://p:9090/agents/berlin?agentName=berlin"
	for _, c := range []struct {
		changes   Changes
		now, want string
	}{
		{Changes{}, "https://odd", "https://odd"},
		{Changes{Access: External{}}, "https://odd", "https://odd"},
		{Changes{Proxy: "p:9090"}, "https://x:1?agentName=berlin", own},
		{Changes{Proxy: "p:9090"}, "http://x:1/agents/berlin?agentName=berlin", sidecar},
		{Changes{Access: Sidecar{}}, own, sidecar},
		{Changes{Access: Sidecar{}}, sidecar, sidecar},
		{Changes{Access: External{}}, sidecar, own},
		{Changes{Access: External{}, Proxy: "p:9090"}, "http://x:1/agents/berlin?agentName=berlin", own},
	} {
		require.Equal(t, c.want, c.changes.server(argocd.Cluster{Server: c.now}, "berlin"))
	}
}
