package e2e_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// signalled sends a signal to a program of the lab.
func signalled(t *testing.T, p *process.Process, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(p.Pid(), signal))
}

// Programs may start before SPIRE does. They say what is missing, are not ready for it, and go on when it is there.
func TestWorkloadAPIThatIsLateOrAway(t *testing.T) {
	t.Parallel()
	m := &mesh{lab: shared, hub: newTrustDomain(t, "hub.test")}
	m.spoke = m.hub // one will do
	name := unique("late")
	var err error
	m.principal, err = shared.NewPrincipal(t.Context(), lab.PrincipalOptions{
		WorkloadAPI: m.hub.Socket, Alive: true, Args: []string{"--auth=spiffe://hub.test" + agentPath + "{agent}"},
	})
	require.NoError(t, err)
	s := prepareSite(t, name, lab.AgentOptions{
		Principal: m.principal, WorkloadAPI: m.hub.Socket, Args: []string{"--principal-spiffe-id=" + principalSVID},
	})
	register(t, m.hub, principalSVID, m.principal.Path())
	register(t, m.hub, "spiffe://hub.test"+agentPath+name, s.agent.Path())

	// No socket.
	stopped(t, m.hub.Agent.Stop)
	start(t, m.principal.Start)
	t.Cleanup(func() { stopped(t, m.principal.Stop) })
	start(t, s.agent.Start)
	const missing, remedy = "TLS certificates missing; waiting for them", "see whether the SPIRE agent runs, and whether its socket is where --spiffe-endpoint-socket says"
	for program, health := range map[marked]string{m.principal: m.principal.HealthURL, s.agent: s.agent.HealthURL} {
		saysNow(t, program, 0, missing, remedy)
		requireNotReady(t, health, remedy)
	}

	start(t, m.hub.Agent.Start)
	says(t, m.principal, "Loaded TLS certificates")
	says(t, s.agent, "Loaded TLS certificates")
	s.connected(t).newTwin("late").create(t).arrives(t)

	// SPIRE is restarted: what is connected stays so.
	marks := map[marked]int64{m.principal: m.principal.Mark(), s.agent: s.agent.Mark()}
	require.NoError(t, m.hub.Agent.Restart(t.Context()))
	for program, mark := range marks {
		saysNow(t, program, mark, "Failed to reload TLS certificates; keeping the last good ones", remedy)
	}
	requireReady(t, m.principal.HealthURL)
	requireReady(t, s.agent.HealthURL)
	for program, mark := range marks {
		saysNow(t, program, mark, "Loaded TLS certificates")
	}

	// A socket that takes connections, and nobody answers: programs that start then wait, and are told so.
	stopped(t, s.agent.Stop)
	signalled(t, m.hub.Agent, syscall.SIGSTOP)
	t.Cleanup(func() { signalled(t, m.hub.Agent, syscall.SIGCONT) })
	start(t, s.agent.Start)
	requireNotReady(t, s.agent.HealthURL, "X.509-SVID of the SPIFFE Workload API at "+m.hub.Socket)
	requireReady(t, m.principal.HealthURL)
	mark := s.agent.Mark()
	signalled(t, m.hub.Agent, syscall.SIGCONT)
	saysNow(t, s.agent, mark, "Loaded TLS certificates", lab.ConnectedAgentLine)
	s.newTwin("silent").create(t).arrives(t)
}
