package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// Without a name the hub is looked at once, and each agent has a line.
func TestDoctorOfAllAgents(t *testing.T) {
	t.Parallel()
	a := ready(t)
	homeless := unique("homeless")
	a.does(t, "agent create "+homeless)
	a.environment = append(a.environment, "HOME="+t.TempDir())
	redis := redistest.Start(t).Address
	command := "doctor --principal-redis " + redis
	got := a.show(t, command)
	require.Contains(t, got, "ok       API server of the hub")
	require.Contains(t, got, "ok       Redis of the hub: argocd-redis:6379 in plain text\n")
	require.Regexp(t, `(?m)^ok +agent berlin: hops that work: [0-9]+, that were not looked at: [0-9]+$`, got)
	require.Contains(t, got, "failed   agent "+homeless+": cluster Secret and namespace of the agent on the hub: "+a.hub+"/cluster-"+homeless+"\n         the hub has no namespace "+homeless)
	a.fails(t, command, "agent "+homeless+": the first hop that fails: cluster Secret and namespace", "kubectl create namespace "+homeless)
	wide := a.show(t, command+" -o wide")
	require.Contains(t, wide, "ok       agent berlin: cluster Secret and namespace of the agent on the hub: "+a.hub+"/cluster-berlin\n")
	require.NotContains(t, wide, "agent berlin: certificates of the agent on its cluster: CN")
	var all []struct{ Check, Agent string }
	require.NoError(t, json.Unmarshal([]byte(a.show(t, command+" -o json")), &all))
	seen := make(map[string]int)
	for _, c := range all {
		seen[c.Agent]++
	}
	require.Positive(t, seen[""])
	require.Equal(t, seen["berlin"], seen[homeless], "each hop of each agent")
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(homeless)))
	a.does(t, command)

	a.fails(t, command+" --side both", "the config file has no agents")
	a.fails(t, command+" --agent-context spoke-b", "give the agent's name")
	a.does(t, "config add agent berlin --context spoke-b --namespace "+a.spoke)
	wide = a.show(t, command+" --side both -o wide")
	require.Contains(t, wide, "ok       agent berlin: certificates of the agent on its cluster\n")
	require.Contains(t, wide, "ok       agent berlin: API server of the agent's cluster (context spoke-b)")
	require.NotContains(t, wide, "agent "+homeless+": API server", "nobody knows its cluster")
	onSpoke := a.show(t, "doctor --side spoke")
	require.Regexp(t, `^ok +agent berlin: hops that work: 2, that were not looked at: 3\n$`, onSpoke)
}

// serverDeployment is argocd-server as Argo CD's installations have it.
const serverDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: argocd-server, labels: {app.kubernetes.io/component: server, app.kubernetes.io/part-of: argocd}}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec: {containers: [{name: server, image: argocd, command: [argocd-server], args: [--redis-use-tls]}]}
`

// An argocd-server that reads the hub's Redis shows nothing of agents, and nothing else fails then.
func TestDoctorLooksWhichRedisArgoCDServerUses(t *testing.T) {
	t.Parallel()
	a := ready(t)
	command := "doctor berlin --redis-proxy " + shared.Redisproxy.Address
	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), []byte(serverDeployment), a.hub))
	a.fails(t, command, "the first hop that fails: argocd-server's connection to redisproxy", "Deployment argocd-server uses argocd-redis:6379, which is the hub's Redis",
		"redis.server in ConfigMap "+a.hub+"/argocd-cmd-params-cm")
	sets(t, shared.Hub, a.hub, "argocd-cmd-params-cm", map[string]string{"redis.server": "argocd-redis." + a.hub + ".svc:6379"})
	a.fails(t, command, "which is the hub's Redis")
	sets(t, shared.Hub, a.hub, "argocd-cmd-params-cm", map[string]string{"redis.server": "proxy:6379"})
	require.Contains(t, a.show(t, command), "ok       argocd-server's connection to redisproxy: proxy:6379 by TLS\n")
	a.fails(t, command, "the first hop that fails: redisproxy: proxy:6379: it answers in plain text, and TLS is configured")
	passwordOfRedis(t, shared.Hub, a.hub)
	require.Contains(t, a.show(t, command+" --redis-proxy-tls=false"), "ok       redisproxy: proxy:6379 in plain text\n")
}
