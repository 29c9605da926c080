package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// Every hop of a healthy agent works, and of one that is not the first that fails is named.
func TestDoctorNamesTheFirstHopThatFails(t *testing.T) {
	t.Parallel()
	name := unique("patient")
	require.NoError(t, shared.Spoke("b").Apply(t.Context(), namespace(name)))
	_, err := shared.Agentctl(t.Context(), "pki", "issue", "agent", name, "--agent-context=spoke-b", "--agent-namespace="+name)
	require.NoError(t, err)
	s := startSite(t, name, lab.AgentOptions{Name: "b"}).connected(t) // a name by which the lab adds no files
	a := admin{hub: lab.Namespace, spoke: name, environment: []string{"KUBECONFIG=" + shared.Kubeconfigs(), "ARGOCD_AGENT_AGENT_NAMESPACE=" + name}}
	command := "doctor " + name + " --agent-context spoke-b --principal-address " + shared.Principal.Address + " --redis-proxy " + shared.Redisproxy.Address +
		" --principal-redis " + shared.Hub.ArgoCD.RedisAddress + " --agent-redis " + shared.Spoke("b").ArgoCD.RedisAddress +
		" --principal-metrics " + strings.TrimSuffix(shared.Principal.MetricsURL, "/metrics") + " --principal-user " + lab.PrincipalUser + " --agent-user " + lab.AgentUser
	passwordOfRedis(t, shared.Hub, lab.Namespace)
	passwordOfRedis(t, shared.Spoke("b"), name)
	text := a.does(t, command).output
	for _, hop := range []string{
		"API server of the agent's cluster", "API server of the hub", "rights of the principal", "rights of the agent", "cluster Secret and namespace",
		"certificates of the agent", "DNS to the principal", "TCP to the principal", "TLS to the principal", "identity and authorisation", "stream of the agent", "resync",
		"argocd-server's cluster connection, and the Kubernetes API through the tunnel",
		"Redis of the hub: argocd-redis:6379 in plain text", "redisproxy: argocd-agent-redis-proxy:6379 in plain text", "Redis of the agent's cluster",
		"redisproxy's connection to the principal", "Redis through the tunnel",
	} {
		require.Regexp(t, `(?m)^ok +`+hop, text)
	}
	require.NotContains(t, text, "failed")
	s.connected(t)
	require.Contains(t, a.does(t, "doctor "+name+" --side hub").output, "skipped  stream of the agent to a principal")

	a.fails(t, strings.Replace(command, shared.Principal.Address, "127.0.0.1:1", 1), "the first hop that fails: TCP to the principal")
	a.fails(t, strings.Replace(command, shared.Principal.Address, "nowhere.invalid:443", 1), "the first hop that fails: DNS to the principal")
	a.fails(t, strings.Replace(command, lab.AgentUser, "nobody", 1), "the first hop that fails: rights of the agent", "nobody may not get")
	a.fails(t, command+" --destination-based-mapping", "the first hop that fails: rights of the agent", "applications.argoproj.io in all namespaces")
	_, err = shared.Agentctl(t.Context(), "pki", "issue", "agent", "another", "--agent-context=spoke-b", "--agent-namespace="+name, "--upsert")
	require.NoError(t, err)
	a.fails(t, command, `the first hop that fails: certificates of the agent on its cluster`, `its common name is "another"`)
	stopped(t, s.agent.Stop)
	away, err := a.try(t, command)
	require.Error(t, err)
	require.Contains(t, away.output, "failed   stream of the agent to a principal\n         the agent is away")
}
