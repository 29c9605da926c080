package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// keyring is where a program has its certificate and the CAs that it trusts.
type keyring interface {
	// holds makes it hold these. A pair or CAs of nothing are left out.
	holds(t *testing.T, cas []byte, pair pki.Pair)
}

// secrets is a keyring of two Secrets.
type secrets struct {
	cluster         *lab.Cluster
	namespace, name string
}

func (s secrets) holds(t *testing.T, cas []byte, pair pki.Pair) {
	t.Helper()
	if cas != nil {
		s.put(t, s.name+"-ca", map[string][]byte{"ca.crt": cas})
	}
	if pair.Certificate != nil {
		s.put(t, s.name+"-tls", map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key})
	}
}

func (s secrets) put(t *testing.T, name string, data map[string][]byte) {
	t.Helper()
	client := s.cluster.Kubernetes.CoreV1().Secrets(s.namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	_, err := client.Update(t.Context(), secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(t.Context(), secret, metav1.CreateOptions{})
		t.Cleanup(func() { core(s.cluster, "secrets", s.namespace, name).delete(t) })
	}
	require.NoError(t, err)
}

// files is a keyring of files that belong to the program of that name.
type files struct{ program string }

func (f files) holds(t *testing.T, cas []byte, pair pki.Pair) {
	t.Helper()
	for name, data := range map[string][]byte{"ca.crt": cas, "tls.crt": pair.Certificate, "tls.key": pair.Key} {
		if data != nil {
			_, err := shared.Host.Write(lab.CertificateFile(f.program, name), data)
			require.NoError(t, err)
		}
	}
}

func newCA(t *testing.T, name string, validity pki.Validity) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: name, Validity: validity})
	require.NoError(t, err)
	return ca
}

func serverPair(t *testing.T, ca *pki.CA, validity pki.Validity) pki.Pair {
	t.Helper()
	pair, err := ca.IssueServer(pki.ServerOptions{
		CommonName: "principal", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}, Validity: validity,
	})
	require.NoError(t, err)
	return pair
}

func clientPair(t *testing.T, ca *pki.CA, name string, validity pki.Validity) pki.Pair {
	t.Helper()
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: name, Validity: validity})
	require.NoError(t, err)
	return pair
}

// callerPair is for Argo CD, which reaches an agent through kubeproxy by it.
func callerPair(t *testing.T, ca *pki.CA, agent string, validity pki.Validity) pki.Pair {
	t.Helper()
	pair, err := ca.IssueClient(pki.ClientOptions{Caller: identity.Agent(agent), Validity: validity})
	require.NoError(t, err)
	return pair
}

// hubAndSpoke is a principal and an agent with keyrings of their own.
type hubAndSpoke struct {
	principal      *lab.Principal
	site           *site
	ours, theirs   keyring
	ca             *pki.CA
	server, client pki.Pair
}

// inSecrets starts a principal and an agent that have their certificates in Secrets.
func inSecrets(t *testing.T, name string) *hubAndSpoke {
	t.Helper()
	name = unique(name)
	h := &hubAndSpoke{
		ca:     newCA(t, "first CA", pki.Validity{}),
		ours:   secrets{shared.Hub, lab.Namespace, name},
		theirs: secrets{shared.Spoke("b"), name, name},
	}
	require.NoError(t, shared.Spoke("b").Apply(t.Context(), namespace(name)))
	h.issue(t, name)
	h.principal = newPrincipal(t, lab.PrincipalOptions{
		Args: []string{"--tls-secret-name=" + name + "-tls", "--tls-ca-secret-name=" + name + "-ca"},
	})
	h.site = startSite(t, name, lab.AgentOptions{
		Principal: h.principal, Name: "b", // so that the lab adds no files
		Args: []string{"--tls-secret-name=" + name + "-tls", "--root-ca-secret-name=" + name + "-ca"},
	})
	return h
}

// inFiles starts a principal and an agent that have their certificates in files.
func inFiles(t *testing.T, name string) *hubAndSpoke {
	t.Helper()
	name = unique(name)
	h := &hubAndSpoke{ca: newCA(t, "first CA", pki.Validity{})}
	h.issue(t, name)
	h.principal = newPrincipal(t, lab.PrincipalOptions{Certificates: certificates(h.ca, h.server)})
	h.site = startSite(t, name, lab.AgentOptions{
		Principal: h.principal, Certificates: certificates(h.ca, h.client),
	})
	h.ours, h.theirs = files{h.principal.Name()}, files{h.site.agent.Name()}
	return h
}

// issue issues a certificate to each side, and has them hold it where they have keyrings already.
func (h *hubAndSpoke) issue(t *testing.T, name string) {
	t.Helper()
	h.server, h.client = serverPair(t, h.ca, pki.Validity{}), clientPair(t, h.ca, name, pki.Validity{})
	if h.ours != nil {
		h.ours.holds(t, h.ca.PEM().Certificate, h.server)
		h.theirs.holds(t, h.ca.PEM().Certificate, h.client)
	}
}

func certificates(ca *pki.CA, pair pki.Pair) *lab.Certificates {
	return &lab.Certificates{CA: ca.PEM().Certificate, Certificate: pair.Certificate, Key: pair.Key}
}

// A whole change of CA, step by step as an administrator does it, and nothing is restarted.
func TestCertificateRotationWithoutRestart(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, string) *hubAndSpoke{
		"in-secrets": inSecrets, "in-files": inFiles,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := begin(t, name)
			h.site.connected(t)
			require.Equal(t, "first CA", h.presented(t))
			h.site.newTwin("before").create(t).arrives(t)
			principal, agent := h.principal.Pid(), h.site.agent.Pid()

			first, second := h.ca, newCA(t, "second CA", pki.Validity{})
			both := append(first.PEM().Certificate, second.PEM().Certificate...)
			h.replaces(t, h.ours, h.principal, both, pki.Pair{})
			h.replaces(t, h.theirs, h.site.agent, both, pki.Pair{})

			mark, seen := h.site.agent.Mark(), h.principal.Mark()
			h.replaces(t, h.ours, h.principal, nil, serverPair(t, second, pki.Validity{}))
			require.Equal(t, "second CA", h.presented(t))
			h.replaces(t, h.theirs, h.site.agent, nil, clientPair(t, second, h.site.name, pki.Validity{}))
			saysNow(t, h.site.agent, mark, "Certificate renewed; reconnecting", lab.ConnectedAgentLine)
			saysNow(t, h.principal, seen, lab.ConnectedPrincipalLine)

			h.replaces(t, h.ours, h.principal, second.PEM().Certificate, pki.Pair{})
			h.replaces(t, h.theirs, h.site.agent, second.PEM().Certificate, pki.Pair{})
			h.site.newTwin("after").create(t).arrives(t)
			require.Equal(t, principal, h.principal.Pid())
			require.Equal(t, agent, h.site.agent.Pid())
		})
	}
}

// replaces changes what is on a keyring, and waits until its program has noticed.
func (h *hubAndSpoke) replaces(t *testing.T, k keyring, program marked, cas []byte, pair pki.Pair) {
	t.Helper()
	mark := program.Mark()
	k.holds(t, cas, pair)
	saysNow(t, program, mark, "Loaded TLS certificates")
}

// marked is a program whose log can be read from now on.
type marked interface {
	logging
	Mark() int64
}

// presented returns who issued the certificate that the principal now shows.
func (h *hubAndSpoke) presented(t *testing.T) string {
	t.Helper()
	var issuer string
	config := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // this only looks
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			leaf, err := x509.ParseCertificate(raw[0])
			if err == nil {
				issuer = leaf.Issuer.CommonName
			}
			return err
		},
	}
	dialer := tls.Dialer{Config: config}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", h.principal.Address)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	return issuer
}

// What cannot be used does not replace what can.
func TestInvalidCertificateUpdateKeepsLastGoodOne(t *testing.T) {
	t.Parallel()
	h := inSecrets(t, "clumsy")
	h.site.connected(t)
	mark := h.site.agent.Mark()
	h.theirs.holds(t, nil, pki.Pair{Certificate: []byte("nonsense"), Key: h.client.Key})
	saysNow(t, h.site.agent, mark, "keeping the last good ones", h.site.name+"/"+h.site.name+"-tls")
	mark = h.principal.Mark()
	h.ours.holds(t, nil, pki.Pair{Certificate: h.server.Certificate, Key: h.client.Key})
	saysNow(t, h.principal, mark, "keeping the last good ones", "argocd/"+h.site.name+"-tls")

	h.site.agent.Principal.Reset()
	h.site.newTwin("all-the-same").create(t).arrives(t)
}

// Nothing that a certificate opened outlives it.
func TestConnectionEndsWhenCertificateExpires(t *testing.T) {
	t.Parallel()
	h := inFiles(t, "short-lived")
	h.site.connected(t)
	soon := pki.Validity{NotAfter: time.Now().Add(8 * time.Second)}
	mark, seen := h.site.agent.Mark(), h.principal.Mark()
	h.theirs.holds(t, nil, clientPair(t, h.ca, h.site.name, soon))
	saysNow(t, h.site.agent, mark, lab.ConnectedAgentLine)
	saysNow(t, h.principal, seen, "the client's certificate has expired: connect again with a newer one")
	saysNow(t, h.site.agent, mark, "it expired at")

	h.theirs.holds(t, nil, clientPair(t, h.ca, h.site.name, pki.Validity{}))
	h.site.newTwin("renewed").create(t).arrives(t)
}

// Nor does it outlive the trust in who issued the certificate. Other connections notice nothing.
func TestConnectionEndsWhenCAIsRemoved(t *testing.T) {
	t.Parallel()
	h := inSecrets(t, "distrusted")
	h.site.connected(t)
	second := newCA(t, "second CA", pki.Validity{})
	h.replaces(t, h.ours, h.principal, append(h.ca.PEM().Certificate, second.PEM().Certificate...), pki.Pair{})
	name := unique("trusted")
	other := certificates(second, clientPair(t, second, name, pki.Validity{}))
	other.CA = h.ca.PEM().Certificate // the principal's certificate is still its own
	trusted := startSite(t, name, lab.AgentOptions{Principal: h.principal, Certificates: other}).connected(t)

	mark, seen := h.site.agent.Mark(), h.principal.Mark()
	h.ours.holds(t, second.PEM().Certificate, pki.Pair{})
	saysNow(t, h.site.agent, mark, "the client's certificate is no longer trusted",
		"which is none of the CAs trusted here", "the other side refused our client certificate")
	saysNow(t, h.principal, seen, "An agent disconnected\" component=agents agent="+h.site.name, "TLS handshake failed")
	trusted.newTwin("undisturbed").create(t).arrives(t)
	_, metrics := get(t, trusted.agent.MetricsURL)
	require.Contains(t, metrics, "\nargocd_agent_connections_total 1\n")

	h.theirs.holds(t, nil, clientPair(t, second, h.site.name, pki.Validity{}))
	h.site.newTwin("trusted-again").create(t).arrives(t)
}

func TestPrincipalRejectsInvalidAgentCertificates(t *testing.T) {
	t.Parallel()
	past := pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	future := pki.Validity{NotBefore: time.Now().Add(time.Hour)}
	strangers := newCA(t, "strangers", pki.Validity{})
	for name, c := range map[string]struct {
		pair          pki.Pair
		agent, server []string // what each of them says
	}{
		"expired": {
			clientPair(t, shared.CA, "expired", past),
			[]string{"the other side refused our client certificate CN=expired: it expired at", "renew it"},
			[]string{"client certificate CN=expired expired at", "renew it"},
		},
		"not-yet": {
			clientPair(t, shared.CA, "not-yet", future),
			[]string{"the other side refused our client certificate CN=not-yet: it is not valid before", "compare the clocks"},
			[]string{"client certificate CN=not-yet is not valid before", "compare the clocks"},
		},
		"wrong-ca": {
			clientPair(t, strangers, "wrong-ca", pki.Validity{}),
			[]string{"the other side refused our client certificate CN=wrong-ca", "strangers", "issue it by a trusted CA"},
			[]string{"client certificate CN=wrong-ca was issued by CN=strangers, which is none of the CAs trusted here", "issue it by one of those"},
		},
		"for-servers": {
			serverPair(t, shared.CA, pki.Validity{}),
			[]string{"the other side refused our client certificate CN=principal"},
			[]string{"client certificate CN=principal"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := shared.Principal.Mark()
			s := startSite(t, name, lab.AgentOptions{Certificates: certificates(shared.CA, c.pair)})
			says(t, s.agent, append(c.agent, "Connection to principal failed; retrying")...)
			saysNow(t, shared.Principal, mark, append(c.server, "TLS handshake failed")...)
		})
	}
}

func TestAgentRejectsInvalidPrincipalCertificates(t *testing.T) {
	t.Parallel()
	past := pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	strangers := newCA(t, "strangers", pki.Validity{})
	elsewhere, err := shared.CA.IssueServer(pki.ServerOptions{Names: []string{"elsewhere.example.com"}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		pair          pki.Pair
		agent, server []string
	}{
		"hub-expired": {
			serverPair(t, shared.CA, past),
			[]string{"server certificate CN=principal expired at", "renew it"},
			[]string{"the other side refused our server certificate CN=principal: it expired at"},
		},
		"hub-wrong-ca": {
			serverPair(t, strangers, pki.Validity{}),
			[]string{"server certificate CN=principal was issued by CN=strangers, which is none of the CAs trusted here"},
			[]string{"the other side refused our server certificate CN=principal", "issued by CN=strangers"},
		},
		"hub-wrong-name": {
			elsewhere,
			[]string{"is for elsewhere.example.com, but 127.0.0.1 was wanted: connect by one of its names"},
			[]string{"the other side refused our server certificate CN=elsewhere.example.com"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// One whose own certificate has expired is not ready, and serves all the same.
			principal := newPrincipal(t, lab.PrincipalOptions{Alive: true, Certificates: certificates(shared.CA, c.pair)})
			s := newSite(t, name, lab.AgentOptions{Principal: principal})
			says(t, s.agent, append(c.agent, "Connection to principal failed; retrying")...)
			says(t, principal, append(c.server, "TLS handshake failed")...)
		})
	}
}

// Somebody who reaches the port and has no certificate gets no further, and the log says who that was.
func TestClientWithoutCertificateIsRejected(t *testing.T) {
	t.Parallel()
	h := &hubAndSpoke{principal: newPrincipal(t, lab.PrincipalOptions{})}
	h.presented(t)
	says(t, h.principal, "TLS handshake failed", "peer=127.0.0.1:", "reason=no_certificate",
		"the client presented no certificate: configure one on its side")
}

// A Secret may come later than the program that wants it.
func TestMissingCertificateSecretIsNamedAndAwaited(t *testing.T) {
	t.Parallel()
	const name = "bare"
	ca := newCA(t, "late CA", pki.Validity{})
	principal, err := shared.NewPrincipal(t.Context(), lab.PrincipalOptions{
		Alive: true, Args: []string{"--tls-secret-name=bare-tls", "--tls-ca-secret-name=bare-ca"},
	})
	require.NoError(t, err)
	start(t, principal.Start)
	t.Cleanup(func() { stopped(t, principal.Stop) })
	s := startSite(t, name, lab.AgentOptions{
		Principal: principal, Name: "b", Args: []string{"--tls-secret-name=bare-tls", "--root-ca-secret-name=bare-ca"},
	})
	says(t, principal, "TLS certificates missing; waiting for them", "Secret argocd/bare-tls: not found: create it with: argocd-agentctl pki issue principal",
		"Secret argocd/bare-ca: not found: create it with: argocd-agentctl pki init")
	says(t, s.agent, "TLS certificates missing; waiting for them", "Secret bare/bare-tls: not found: create it with: argocd-agentctl pki issue agent",
		"Secret bare/bare-ca: not found: create it with: argocd-agentctl pki propagate")
	requireNotReady(t, principal.HealthURL, "certificate: not ready:", "Secret argocd/bare-tls: not found")
	requireNotReady(t, s.agent.HealthURL, "certificate: not ready:", "Secret bare/bare-tls: not found")

	secrets{shared.Hub, lab.Namespace, name}.holds(t, ca.PEM().Certificate, serverPair(t, ca, pki.Validity{}))
	secrets{s.spoke, name, name}.holds(t, ca.PEM().Certificate, clientPair(t, ca, name, pki.Validity{}))
	s.connected(t)
	requireReady(t, principal.HealthURL)
	requireReady(t, s.agent.HealthURL)
}

func TestMissingCertificateFileIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "fileless", lab.AgentOptions{
		Args: []string{"--tls-client-cert=/nowhere/tls.crt", "--tls-client-key=/nowhere/tls.key"},
	})
	says(t, s.agent, "TLS certificates missing; waiting for them", "/nowhere/tls.crt", "see --tls-client-cert and --tls-client-key")
}
