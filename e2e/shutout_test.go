package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// agentctl runs argocd-agentctl, which must work.
func agentctl(t *testing.T, args ...string) {
	t.Helper()
	_, err := shared.Agentctl(t.Context(), args...)
	require.NoError(t, err)
}

// refusals counts the lines by which a principal said since a mark that it refused an agent.
func refusals(t *testing.T, p *lab.Principal, mark int64, agent string) (n int) {
	t.Helper()
	log, err := p.LogFrom(mark)
	require.NoError(t, err)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Refused connection") && strings.Contains(line, "agent="+agent+" ") {
			n++
		}
	}
	return n
}

// A stolen key is of no use once its agent is blocked, and all else goes on.
func TestBlockedAgentIsShutOutUntilItIsUnblocked(t *testing.T) {
	t.Parallel()
	s := newSite(t, "blocked", lab.AgentOptions{}).connected(t)
	other := newSite(t, "unblocked", lab.AgentOptions{}).connected(t)
	s.newTwin("before").create(t).arrives(t)

	seen, mark := shared.Principal.Mark(), s.agent.Mark()
	agentctl(t, "agent", "block", s.name, "--reason", "its key was stolen")
	saysNow(t, s.agent, mark, "agent "+s.name+" is blocked: unblock it with: argocd-agentctl agent unblock "+s.name)
	saysNow(t, shared.Principal, seen, `An agent disconnected" component=agents agent=`+s.name, "agent "+s.name+" is blocked")
	for range 2 {
		require.NoError(t, s.agent.Restart(t.Context()))
		says(t, s.agent, "agent "+s.name+" is blocked")
	}
	require.Equal(t, 1, refusals(t, shared.Principal, seen, s.name), "refused many times, logged once")
	meanwhile := s.newTwin("meanwhile").create(t)
	other.newTwin("undisturbed").create(t).arrives(t)

	agentctl(t, "agent", "unblock", s.name)
	meanwhile.arrives(t)
}

// To delete the cluster Secret shuts an agent out as well, where that is wanted.
func TestAgentIsShutOutWithItsClusterSecret(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--require-cluster-secret"}})
	s := newSite(t, "deregistered", lab.AgentOptions{Principal: principal}).connected(t)
	other := newSite(t, "registered", lab.AgentOptions{Principal: principal}).connected(t)
	s.newTwin("before").create(t).arrives(t)

	mark := s.agent.Mark()
	core(shared.Hub, "secrets", lab.Namespace, "cluster-"+s.name).delete(t)
	saysNow(t, s.agent, mark, "the hub has no cluster Secret of agent "+s.name)
	require.NoError(t, s.agent.Restart(t.Context()))
	says(t, s.agent, "argocd-agentctl agent create "+s.name)
	other.newTwin("undisturbed").create(t).arrives(t)

	require.NoError(t, shared.RegisterAgent(t.Context(), s.name))
	s.newTwin("again").create(t).arrives(t)
}

// Whoever takes over the principal, which reads the Secrets of its namespace, does not get the CA's private key.
func TestCAKeyInANamespaceOfItsOwn(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	place := a.hub + "-agent-ca" // by default
	in := " --ca-namespace="
	a.does(t, "pki init"+in, "pki init"+in)
	data := a.secret(t, "argocd-agent-ca").Data
	require.NotContains(t, data, "tls.key")
	require.Contains(t, data, "ca.crt")
	require.Contains(t, secretOf(t, shared.Hub, place, "argocd-agent-ca").Data, "tls.key")
	a.does(t, "pki issue principal"+in, "pki issue resource-proxy"+in, "agent create berlin"+in, "pki issue agent berlin --agent-context=spoke-b"+in)
	require.NotContains(t, a.does(t, "pki inspect"+in).output, "PROBLEM")
	a.fails(t, "pki issue principal --upsert", "it has no private key", "--ca-namespace")

	// A pair that is there from before is used, and its owner warned.
	b := newAdmin(t)
	b.does(t, "pki init")
	require.Contains(t, b.does(t, "pki init"+in).warnings, "has the CA's private key, which the principal can read there: move that Secret")
	require.Contains(t, b.does(t, "pki issue principal"+in).warnings, "move that Secret")
	require.Contains(t, b.secret(t, "argocd-agent-ca").Data, "tls.key")
}
