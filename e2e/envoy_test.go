package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// How agents of these tests are named by their SPIFFE IDs, and the gateway's own.
const (
	meshAgents = "spiffe://lab.test/agent/"
	meshAuth   = "--auth=" + meshAgents + "{agent}"
	gatewayID  = "spiffe://lab.test/gateway"
	// meshKubeproxy is a component of the hub.
	meshKubeproxy = "spiffe://lab.test/kubeproxy"
)

// startEnvoy runs an Envoy until the test is over.
func startEnvoy(t *testing.T, options envoy.Options) *envoy.Envoy {
	t.Helper()
	e, err := shared.StartEnvoy(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, e.Stop) })
	return e
}

// serving is what an Envoy shows to its clients, and from whom it wants a certificate.
func serving(t *testing.T) envoy.Listener {
	t.Helper()
	identity, err := shared.ServerIdentity()
	require.NoError(t, err)
	return envoy.Listener{Identity: identity}
}

// originating is a backend that an Envoy speaks mutual TLS to.
func originating(t *testing.T, address, spiffeID string) envoy.Backend {
	t.Helper()
	identity, err := shared.ClientIdentity(spiffeID)
	require.NoError(t, err)
	return envoy.Backend{Address: address, Identity: identity}
}

// behindEnvoy runs an Envoy in front of a principal that speaks plain text, and returns the principal as its agents see it.
func behindEnvoy(t *testing.T, principal *lab.Principal) (*lab.Principal, *envoy.Envoy) {
	t.Helper()
	sidecar := startEnvoy(t, envoy.Options{Name: "hub-envoy", Listener: serving(t), Backend: envoy.Backend{Address: principal.Address}})
	return principal.Behind(sidecar), sidecar
}

// meshPair is the certificate of an agent that is known by its SPIFFE ID.
func meshPair(t *testing.T, agent string) pki.Pair {
	t.Helper()
	pair, err := shared.CA.IssueClient(pki.ClientOptions{SPIFFEID: meshAgents + agent})
	require.NoError(t, err)
	return pair
}

// meshSite is a site whose agent is known by its SPIFFE ID.
func meshSite(t *testing.T, name string, principal *lab.Principal, pair pki.Pair) *site {
	t.Helper()
	return startSite(t, name, lab.AgentOptions{Principal: principal, Certificates: certificates(shared.CA, pair)})
}

// Envoy sends what different agents say over one connection. Each is an agent of its own all the same: what ends one leaves the others.
func TestAgentsBehindOneEnvoyStayApart(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--insecure-plaintext", meshAuth}})
	front, sidecar := behindEnvoy(t, principal)
	var sites []*site
	var pairs []pki.Pair
	for _, name := range []string{"apart", "apart", "apart", "apart"} {
		name = unique(name)
		pairs = append(pairs, meshPair(t, name))
		sites = append(sites, meshSite(t, name, front, pairs[len(pairs)-1]).connected(t))
	}
	connections, err := sidecar.Connections(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, connections, "of all agents, to the principal")
	for _, s := range sites {
		s.newTwin("mine").create(t).arrives(t)
	}
	leaf, err := pairs[1].TLS()
	require.NoError(t, err)
	digest := sha256.Sum256(leaf.Leaf.Raw)
	for i, block := range [][]string{{sites[0].name}, {"--fingerprint", hex.EncodeToString(digest[:])}, {"--spiffe-id", meshAgents + sites[2].name}} {
		mark, seen := sites[i].agent.Mark(), principal.Mark()
		agentctl(t, append([]string{"agent", "block"}, block...)...)
		saysNow(t, sites[i].agent, mark, "is blocked")
		saysNow(t, principal, seen, `An agent disconnected" component=agents agent=`+sites[i].name, "is blocked")
	}
	sites[3].newTwin("undisturbed").create(t).arrives(t)
	require.NotContains(t, logSince(t, principal.LogPath(), 0), `An agent disconnected" component=agents agent=`+sites[3].name)
}

// With a sidecar on both sides neither principal nor agent has a key.
func TestSidecarsOfPrincipalAndAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "principal.sock")
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--insecure-plaintext", "--listen-socket=" + socket, meshAuth, "--hub-components=" + meshKubeproxy + "=kube"}})
	hub := startEnvoy(t, envoy.Options{
		Name: "hub-envoy", Listener: envoy.Listener{Identity: serving(t).Identity, ForwardCertificate: true}, Backend: envoy.Backend{Address: socket},
	})
	name := unique("sidecars")
	spoke := startEnvoy(t, envoy.Options{Name: "spoke-envoy", Backend: originating(t, hub.Address, meshAgents+name)})
	s := startSite(t, name, lab.AgentOptions{
		Principal: principal.Behind(spoke), Args: []string{"--insecure-plaintext", "--creds=header:any"}, Certificates: &lab.Certificates{},
	}).connected(t)
	app := s.newTwin("mine").create(t)
	app.arrives(t)
	app.spoke.edit(t, reports("Healthy", "one"))
	app.hub.becomes(t, has("one", "status", "sync", "revision"))

	// kubeproxy reaches the principal by a sidecar too, and through both the agent.
	beside := startEnvoy(t, envoy.Options{Name: "kubeproxy-envoy", Backend: originating(t, hub.Address, meshKubeproxy)})
	kubeproxy := newKubeproxy(t, lab.ProxyOptions{Principal: principal.Behind(beside), Args: []string{"--principal-insecure-plaintext"}})
	status, body := newCaller(t, kubeproxy, lab.AllAgents).asks(t, "/agents/"+name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "gitVersion")

	require.NoError(t, principal.Restart(t.Context())) // which takes its socket again
	saysNow(t, s.agent, 0, lab.ConnectedAgentLine)
	s.newTwin("again").create(t).arrives(t)
}

// An ingress gateway ends the agents' TLS and speaks mutual TLS to the principal, which agents also reach directly.
func TestPrincipalBehindATrustedGateway(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{meshAuth, "--trusted-proxies=" + gatewayID}})
	gateway := startEnvoy(t, envoy.Options{Name: "hub-gateway", Listener: serving(t), Backend: originating(t, principal.Address, gatewayID)})
	through, direct := unique("through-gateway"), unique("beside-gateway")
	meshSite(t, through, principal.Behind(gateway), meshPair(t, through)).newTwin("mine").create(t).arrives(t)
	meshSite(t, direct, principal, meshPair(t, direct)).newTwin("mine").create(t).arrives(t)

	// Another workload of the mesh is no gateway.
	impostor := startEnvoy(t, envoy.Options{Name: "impostor", Listener: serving(t), Backend: originating(t, principal.Address, "spiffe://lab.test/impostor")})
	refused, mark := unique("by-impostor"), principal.Mark()
	s := meshSite(t, refused, principal.Behind(impostor), meshPair(t, refused))
	reason := "came with the header x-forwarded-client-cert, which counts only from a trusted proxy: name its SPIFFE ID in the setting --trusted-proxies"
	says(t, s.agent, reason)
	saysNow(t, principal, mark, "Refused connection", reason)
}
