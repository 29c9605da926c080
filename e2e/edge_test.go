package e2e_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// serves shows that an agent that came by an edge is synchronised and reached.
func (s *site) serves(t *testing.T, principal *lab.Principal) {
	t.Helper()
	app := s.connected(t).newTwin("edged").create(t)
	app.arrives(t)
	status, body := newCaller(t, newKubeproxy(t, lab.ProxyOptions{Principal: principal}), lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
}

// Envoys with the configurations that are shipped for the hub's edge lead agents to principals; one that is gone is passed over.
func TestShippedEdges(t *testing.T) {
	t.Parallel()
	t.Run("that passes TLS through", func(t *testing.T) {
		t.Parallel()
		principals, _ := newReplicas(t, 2)
		edge, err := shared.StartEdge(t.Context(), "edge-passthrough.yaml", nil, principals[0].Address, principals[1].Address)
		require.NoError(t, err)
		t.Cleanup(func() { stopped(t, edge.Stop) })
		principals[0].Kill()
		newSite(t, "passed", lab.AgentOptions{Principal: principals[1].Behind(edge)}).serves(t, principals[1])
	})
	t.Run("that vouches for agents", func(t *testing.T) {
		t.Parallel()
		edgeID := "spiffe://lab.test/edge"
		principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{
			"--auth=header:x-forwarded-client-cert:^" + meshAgents + "([^/]+)$", "--trusted-proxies=" + edgeID, "--hub-components=" + meshKubeproxy + "=kube",
		}})
		// One certificate for both sides: agents know the edge by its name, and principals by its SPIFFE ID.
		pair, err := shared.CA.IssueServer(pki.ServerOptions{
			CommonName: "edge", Names: []string{"localhost"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}, Peer: true, SPIFFEID: edgeID,
		})
		require.NoError(t, err)
		edge, err := shared.StartEdge(t.Context(), "edge-http2.yaml", certificates(shared.CA, pair), principal.Address)
		require.NoError(t, err)
		t.Cleanup(func() { stopped(t, edge.Stop) })
		name := unique("vouched")
		s := meshSite(t, name, principal.Behind(edge), meshPair(t, name)).connected(t)
		app := s.newTwin("edged").create(t)
		app.arrives(t)
	})
}
