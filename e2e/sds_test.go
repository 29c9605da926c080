package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// sidecars are Envoys that SPIRE's agents of two trust domains give certificates by SDS.
type sidecars struct {
	hub, spoke *spire.Domain
	front      *envoy.Envoy // the principal's
}

// newSidecars starts SPIRE on both sides, and an Envoy in front of a principal.
func newSidecars(t *testing.T, backend envoy.Backend, forwardCertificate bool) *sidecars {
	t.Helper()
	s := &sidecars{hub: newTrustDomain(t, "hub.test"), spoke: newTrustDomain(t, "spoke.test")}
	require.NoError(t, spire.Federate(t.Context(), s.hub, s.spoke))
	register(t, s.hub, principalSVID, envoyProgram(), s.spoke)
	s.front = startEnvoy(t, envoy.Options{
		Name: "hub-envoy", WorkloadAPI: s.hub.Socket, Backend: backend,
		Listener: envoy.Listener{Identity: &envoy.Identity{SPIFFEID: principalSVID}, ForwardCertificate: forwardCertificate},
	})
	return s
}

// envoyProgram is what SPIRE knows all Envoys by. Each asks for a SPIFFE ID of its own.
func envoyProgram() string { return shared.Tools.Program(toolset.Envoy) }

// beside starts the sidecar of a workload that connects to the principal, and registers it.
func (s *sidecars) beside(t *testing.T, d *spire.Domain, id string, renew time.Duration) *envoy.Envoy {
	t.Helper()
	var federated []*spire.Domain
	if d != s.hub {
		federated = append(federated, s.hub)
	}
	register(t, d, id, envoyProgram(), federated...)
	return startEnvoy(t, envoy.Options{
		Name: "envoy", WorkloadAPI: d.Socket,
		Backend: envoy.Backend{Address: s.front.Address, Identity: &envoy.Identity{SPIFFEID: id, Peer: principalSVID}, Renew: renew},
	})
}

// serialOf is that of the certificate which a server shows.
func serialOf(t *testing.T, address string) *big.Int {
	t.Helper()
	var serial *big.Int
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // this only looks
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			leaf, err := x509.ParseCertificate(raw[0])
			if err == nil {
				serial = leaf.SerialNumber
			}
			return err
		},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	require.NoError(t, err)
	_ = conn.Close() // an Envoy that wants a certificate has closed it
	return serial
}

// No program of ours has a key, and none is in a file: SPIRE gives them to the sidecars, and others every half minute.
func TestSidecarsWithCertificatesOfSPIRE(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "principal.sock")
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{
		"--insecure-plaintext", "--listen-socket=" + socket, "--auth=spiffe://spoke.test" + agentPath + "{agent}", "--hub-components=" + kubeproxySVID + "=kube",
	}})
	mesh := newSidecars(t, envoy.Backend{Address: socket}, false)
	name := unique("sds")
	spoke := mesh.beside(t, mesh.spoke, "spiffe://spoke.test"+agentPath+name, 0)
	s := startSite(t, name, lab.AgentOptions{
		Principal: principal.Behind(spoke), Args: []string{"--insecure-plaintext", "--creds=header:any"}, Certificates: &lab.Certificates{},
	}).connected(t)
	kubeproxy := newKubeproxy(t, lab.ProxyOptions{
		Principal: principal.Behind(mesh.beside(t, mesh.hub, kubeproxySVID, 0)), Args: []string{"--principal-insecure-plaintext"},
	})
	caller := newCaller(t, kubeproxy, lab.AllAgents)
	works := func(app string) {
		t.Helper()
		a := s.newTwin(app).create(t)
		a.arrives(t)
		a.spoke.edit(t, reports("Healthy", "one"))
		a.hub.becomes(t, has("one", "status", "sync", "revision"))
		status, body := caller.asks(t, "/agents/"+name+"/version", "")
		require.Equal(t, http.StatusOK, status, body)
	}
	works("first")
	first, marks := serialOf(t, mesh.front.Address), []int64{s.agent.Mark(), principal.Mark()}
	mark := spoke.Mark()
	for first.Cmp(serialOf(t, mesh.front.Address)) == 0 { // the line may be of a new bundle
		seen := mesh.front.Mark()
		saysNow(t, mesh.front, seen, envoy.RenewedLine)
	}
	saysNow(t, spoke, mark, envoy.RenewedLine)
	works("renewed")
	require.NotContains(t, logSince(t, s.agent.LogPath(), marks[0]), lab.ConnectedAgentLine, "nothing was interrupted")
	require.NotContains(t, logSince(t, principal.LogPath(), marks[1]), "An agent disconnected\" component=agents agent="+name)
}

// Where the principal's sidecar tells when a certificate ends, so do the streams that it proved. An Envoy shows the certificate that it had
// when it opened a connection, so an agent's own has to open another in time.
func TestStreamsBehindSidecarsEndWithTheirCertificates(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--insecure-plaintext", "--auth=spiffe://spoke.test" + agentPath + "{agent}"}})
	mesh := newSidecars(t, envoy.Backend{Address: principal.Address}, true)
	join := func(name string, renew time.Duration) *site {
		spoke := mesh.beside(t, mesh.spoke, "spiffe://spoke.test"+agentPath+name, renew)
		return startSite(t, name, lab.AgentOptions{
			Principal: principal.Behind(spoke), Args: []string{"--insecure-plaintext"}, Certificates: &lab.Certificates{},
		}).connected(t)
	}
	renews, stays := join(unique("sds-renews"), 20*time.Second), join(unique("sds-stays"), 0)
	mark, refused, seen := renews.agent.Mark(), stays.agent.Mark(), principal.Mark()
	for _, s := range []*site{renews, stays} {
		saysSlowly(t, principal, seen, `An agent disconnected" component=agents agent=`+s.name)
	}
	saysSlowly(t, renews.agent, mark, "the client's certificate has expired: connect again with a newer one")
	saysSlowly(t, renews.agent, mark, lab.ConnectedAgentLine)
	renews.newTwin("again").create(t).arrives(t)

	const reason = "the certificate in it expired at"
	saysSlowly(t, stays.agent, refused, reason)
	saysSlowly(t, stays.agent, refused, "by Envoy's max_connection_duration")
	saysSlowly(t, principal, seen, "Refused connection")
	saysSlowly(t, principal, seen, reason)
}
