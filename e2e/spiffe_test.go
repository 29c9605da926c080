package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// SPIFFE IDs of the hub's own.
const (
	principalSVID  = "spiffe://hub.test/ns/argocd/sa/argocd-agent-principal"
	kubeproxySVID  = "spiffe://hub.test/ns/argocd/sa/argocd-agent-kubeproxy"
	redisproxySVID = "spiffe://hub.test/ns/argocd/sa/argocd-agent-redisproxy"
)

// agentPath is what the SPIFFE ID of an agent has before its name.
const agentPath = "/ns/argocd/sa/argocd-agent/agent/"

// mesh is a hub and a spoke, each with a trust domain and a real SPIRE of its own, that are federated.
type mesh struct {
	lab        *lab.Lab
	hub, spoke *spire.Domain
	principal  *lab.Principal
}

// newTrustDomain starts a SPIRE for the test.
func newTrustDomain(t *testing.T, name string) *spire.Domain {
	t.Helper()
	return newTrustDomainOn(t, shared, name)
}

// newTrustDomainOn is newTrustDomain for a lab of a test's own.
func newTrustDomainOn(t *testing.T, l *lab.Lab, name string) *spire.Domain {
	t.Helper()
	d, err := spire.Start(t.Context(), spire.Options{Host: l.Host, Tools: l.Tools, TrustDomain: name, TTL: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, d.Stop) })
	return d
}

// newMesh starts a mesh with a principal. X.509-SVIDs last a minute.
func newMesh(t *testing.T, spoke, auth string) *mesh {
	t.Helper()
	return newMeshOn(t, shared, spoke, auth)
}

// newMeshOn is newMesh for a lab of a test's own.
func newMeshOn(t *testing.T, l *lab.Lab, spoke, auth string) *mesh {
	t.Helper()
	m := &mesh{lab: l, hub: newTrustDomainOn(t, l, "hub.test"), spoke: newTrustDomainOn(t, l, spoke)}
	require.NoError(t, spire.Federate(t.Context(), m.hub, m.spoke))
	var err error
	m.principal, err = l.NewPrincipal(t.Context(), lab.PrincipalOptions{WorkloadAPI: m.hub.Socket, Args: []string{
		"--auth=" + auth, "--hub-components=" + kubeproxySVID + "=kube," + redisproxySVID + "=redis",
	}})
	require.NoError(t, err)
	register(t, m.hub, principalSVID, m.principal.Path(), m.spoke)
	start(t, m.principal.Start)
	t.Cleanup(func() { stopped(t, m.principal.Stop) })
	return m
}

// register has a trust domain know the program at a path by that ID, and returns the entry.
func register(t *testing.T, d *spire.Domain, id, path string, federated ...*spire.Domain) string {
	t.Helper()
	entry, err := d.Register(t.Context(), spire.Entry{SPIFFEID: id, Path: path, FederatesWith: federated})
	require.NoError(t, err)
	return entry
}

// join makes a site whose agent has what a trust domain gives it for that ID, and starts it. It returns the agent's entry.
func (m *mesh) join(t *testing.T, d *spire.Domain, name, id string, options lab.AgentOptions) (*site, string) {
	t.Helper()
	options.Principal, options.WorkloadAPI = m.principal, d.Socket
	options.Args = append([]string{"--principal-spiffe-id=" + principalSVID}, options.Args...)
	s := prepareSite(t, name, options)
	var federated []*spire.Domain
	if d != m.hub { // SPIRE's agent gets nothing any more if an entry is federated with its own trust domain
		federated = append(federated, m.hub)
	}
	entry := register(t, d, id, s.agent.Path(), federated...)
	start(t, s.agent.Start)
	return s, entry
}

// proxy starts a proxy that its SPIFFE ID lets through to the agents.
func (m *mesh) proxy(t *testing.T, id string, define func(*lab.Lab, context.Context, lab.ProxyOptions) (*lab.Proxy, error)) *lab.Proxy {
	t.Helper()
	p, err := define(m.lab, t.Context(), lab.ProxyOptions{Principal: m.principal, WorkloadAPI: m.hub.Socket, Args: []string{"--principal-spiffe-id=" + principalSVID}})
	require.NoError(t, err)
	register(t, m.hub, id, p.Path())
	start(t, p.Start)
	t.Cleanup(func() { stopped(t, p.Stop) })
	return p
}

// Nobody carries a certificate around: all of them are X.509-SVIDs, of two trust domains that are federated.
func TestFederatedTrustDomains(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "spoke.test", "spiffe://spoke.test"+agentPath+"{agent}")
	kubeproxy := m.proxy(t, kubeproxySVID, (*lab.Lab).NewKubeproxy)
	redisproxy := m.proxy(t, redisproxySVID, (*lab.Lab).NewRedisproxy)
	for mode, share := range sharing() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			name := unique("svid-" + mode)
			s, _ := m.join(t, m.spoke, name, "spiffe://spoke.test"+agentPath+name, lab.AgentOptions{Mode: mode})
			s.connected(t)
			app := share(t, s, "guestbook")

			k := kubectlAt(t, kubeproxy, pki.ClientOptions{SPIFFEID: lab.AllAgents}, "/agents/"+name, s.name)
			require.Contains(t, k.run(t, "", "get", "--raw=/version"), "gitVersion")
			asked := dialRedis(t, redisproxy.Address)
			hub, spoke := dialRedis(t, shared.Hub.ArgoCD.RedisAddress), dialRedis(t, s.spoke.ArgoCD.RedisAddress)
			key := func(instance string) string { return "app|managed-resources|" + instance + "|1.8.3" }
			of := name + "_" + app.declared.Name
			require.Equal(t, "+OK", hub.ask(t, "SET", key(of), "of the hub"))
			for _, instance := range []string{of, app.declared.Name} { // as the spoke calls it with and without a namespace
				require.Equal(t, "+OK", spoke.ask(t, "SET", key(instance), "of the spoke"))
			}
			require.Equal(t, "of the spoke", asked.ask(t, "GET", key(of)))

			// All of it goes on while each of them gets another X.509-SVID.
			for _, program := range []marked{s.agent, m.principal, kubeproxy} {
				saysNow(t, program, program.Mark(), "Loaded TLS certificates")
			}
			share(t, s, "after-rotation")
			require.Contains(t, k.run(t, "", "get", "--raw=/version"), "gitVersion")
		})
	}
}

// An agent whose entry is deleted has its last X.509-SVID to its end, and no longer. It says so, and takes the next one when there is one.
func TestDeletedEntryEndsConnectionWithItsSVID(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "spoke.test", "spiffe://spoke.test"+agentPath+"{agent}")
	name := unique("unregistered")
	id := "spiffe://spoke.test" + agentPath + name
	s, entry := m.join(t, m.spoke, name, id, lab.AgentOptions{})
	s.connected(t)

	// That SPIRE is restarted disturbs nobody.
	mark := s.agent.Mark()
	require.NoError(t, m.spoke.Agent.Restart(t.Context()))
	saysNow(t, s.agent, mark, "keeping the last good ones", "see whether the SPIRE agent runs")
	mark = s.agent.Mark()
	saysNow(t, s.agent, mark, "Loaded TLS certificates", "Certificate renewed; reconnecting", lab.ConnectedAgentLine)
	s.newTwin("restarted").create(t).arrives(t)

	mark, seen := s.agent.Mark(), m.principal.Mark()
	require.NoError(t, m.spoke.Delete(t.Context(), entry))
	const denied = "no identity issued: register this workload with SPIRE, by an entry whose selectors match it"
	saysNow(t, s.agent, mark, "keeping the last good ones", denied)
	requireReady(t, s.agent.HealthURL)
	shows(t, s.agent.MetricsURL, `argocd_agent_certificate_not_after_timestamp_seconds{name="agent"} `)
	s.newTwin("meanwhile").create(t).arrives(t)
	saysSlowly(t, m.principal, seen, "the client's certificate has expired: connect again with a newer one")
	saysSlowly(t, s.agent, mark, "it expired at")
	requireNotReady(t, s.agent.HealthURL, "certificate: not ready: TLS certificates \"agent\": valid only from", denied)
	log, err := s.agent.LogFrom(mark)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(log), denied), "once for the certificate and once for the trusted CAs\n%s", log)

	back := s.agent.Mark()
	register(t, m.spoke, id, s.agent.Path(), m.hub)
	saysSlowly(t, s.agent, back, lab.ConnectedAgentLine)
	requireReady(t, s.agent.HealthURL)
	s.newTwin("registered-again").create(t).arrives(t)

	// A trust domain that is not federated any more is not trusted from then on.
	mark, seen = s.agent.Mark(), m.principal.Mark()
	require.NoError(t, m.hub.Forget(t.Context(), m.spoke))
	saysNow(t, s.agent, mark, "the client's certificate is no longer trusted", "which is none of the CAs trusted here")
	saysNow(t, m.principal, seen, "An agent disconnected\" component=agents agent="+name)
}

// saysSlowly is saysNow for what may take as long as an X.509-SVID is good for.
func saysSlowly(t *testing.T, program logging, mark int64, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	require.NoError(t, program.WaitLogFrom(ctx, mark, text))
}
