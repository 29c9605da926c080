package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// No client certificate gets through a load balancer that ends TLS. JWT-SVIDs do, one for each stream.
func TestAgentsByJWTSVIDBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	const audience, agents = "argocd-agent-principal", "spiffe://jwt.test/agent/"
	domain := newTrustDomain(t, "jwt.test") // its tokens last a minute
	server, err := shared.ServerIdentity()
	require.NoError(t, err)
	principal, err := shared.NewPrincipal(t.Context(), lab.PrincipalOptions{
		WorkloadAPI: domain.Socket, Certificates: certificates(shared.CA, pki.Pair{Certificate: server.Certificate, Key: server.Key}),
		Args: []string{"--auth=" + agents + "{agent}", "--jwt-svid-audience=" + audience},
	})
	require.NoError(t, err)
	register(t, domain, "spiffe://jwt.test/principal", principal.Path())
	start(t, principal.Start)
	t.Cleanup(func() { stopped(t, principal.Stop) })
	balancer := startEnvoy(t, envoy.Options{
		Name: "load-balancer", Listener: envoy.Listener{Identity: &envoy.Identity{Certificate: server.Certificate, Key: server.Key}, Anonymous: true},
		Backend: envoy.Backend{Address: principal.Address, Identity: &envoy.Identity{CA: shared.CA.PEM().Certificate}},
	})
	join := func(name, id, creds string) *site {
		s := prepareSite(t, name, lab.AgentOptions{
			Principal: principal.Behind(balancer), WorkloadAPI: domain.Socket, Args: []string{"--creds=" + creds},
			Certificates: &lab.Certificates{CA: shared.CA.PEM().Certificate},
		})
		register(t, domain, id, s.agent.Path())
		start(t, s.agent.Start)
		return s
	}
	var sites []*site
	for _, name := range []string{unique("jwt-one"), unique("jwt-two")} {
		s := join(name, agents+name, "jwt-svid:"+audience).connected(t)
		s.newTwin("mine").create(t).arrives(t)
		sites = append(sites, s)
	}
	for reason, refused := range map[string]*site{
		"it has to be for the audience": join(unique("jwt-elsewhere"), agents+"elsewhere", "jwt-svid:other"),
		"is of no form in the hub's":    join(unique("jwt-other"), "spiffe://jwt.test/other/agent", "jwt-svid:"+audience),
		"brought no verified client":    join(unique("jwt-none"), agents+"none", "mtls:any"),
	} {
		says(t, refused.agent, reason)
		saysNow(t, principal, 0, "Refused connection", reason)
	}

	// A token lasts a minute, and the agent longer.
	for _, s := range sites {
		mark := s.agent.Mark()
		saysSlowly(t, s.agent, mark, "Certificate renewed; reconnecting")
		saysSlowly(t, s.agent, mark, lab.ConnectedAgentLine)
		s.newTwin("renewed").create(t).arrives(t)
	}
	require.NotContains(t, logSince(t, principal.LogPath(), 0), "eyJ", "tokens are secrets")
}
