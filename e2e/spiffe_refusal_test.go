package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Who is not whom the hub takes for an agent gets no further, and both sides say why.
func TestWrongSPIFFEIDsAreRefused(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "spoke.test", "spiffe://spoke.test"+agentPath+"{agent}")
	stranger := newTrustDomain(t, "stranger.test")
	require.NoError(t, stranger.Follow(t.Context(), m.hub)) // and not the other way round
	for name, c := range map[string]struct {
		domain           *spire.Domain
		id               string // NAME stands for the agent
		args             []string
		agent, principal []string
	}{
		"not-federated": {
			stranger, "spiffe://stranger.test" + agentPath + "NAME", nil,
			[]string{"the other side refused our client certificate"}, []string{"which is none of the CAs trusted here"},
		},
		"other-path": {
			m.spoke, "spiffe://spoke.test/ns/argocd/sa/other/agent/NAME", nil,
			[]string{"/sa/other/agent/NAME", "is of no form in the hub's setting --auth"}, []string{"Refused connection", "/sa/other/agent/NAME"},
		},
		"other-trust-domain": {
			m.hub, "spiffe://hub.test" + agentPath + "NAME", nil,
			[]string{"spiffe://hub.test" + agentPath + "NAME", "is of no form in the hub's setting --auth"},
			[]string{"Refused connection", "spiffe://hub.test" + agentPath + "NAME"},
		},
		"longer-path": {
			m.spoke, "spiffe://spoke.test" + agentPath + "NAME/more", nil,
			[]string{"is of no form in the hub's setting --auth"}, []string{"Refused connection", "NAME/more"},
		},
		"component": {
			m.hub, kubeproxySVID, nil,
			[]string{"is that of a component of the hub, which is no agent"}, []string{"Refused connection", "which is no agent"},
		},
		"other-principal": {
			m.spoke, "spiffe://spoke.test" + agentPath + "NAME", []string{"--principal-spiffe-id=spiffe://hub.test/other"},
			[]string{"is for " + principalSVID + ", but spiffe://hub.test/other was wanted"},
			[]string{"the other side refused our server certificate"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := unique("wrong-" + name)
			named := func(texts []string) []string {
				var all []string
				for _, text := range texts {
					all = append(all, strings.ReplaceAll(text, "NAME", site))
				}
				return all
			}
			mark := m.principal.Mark()
			s, _ := m.join(t, c.domain, site, strings.ReplaceAll(c.id, "NAME", site), lab.AgentOptions{Args: c.args})
			says(t, s.agent, append(named(c.agent), "Connection to principal failed; retrying")...)
			saysNow(t, m.principal, mark, named(c.principal)...)
			requireNotReady(t, s.agent.HealthURL, "connection: not ready")
		})
	}
}

// A SPIFFE ID is the one URI of a certificate, wherever that comes from.
func TestOneURIIsAnIdentity(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--auth=spiffe://example.org/agent/{agent}"}})
	for name, c := range map[string]struct {
		uris []string
		want string
	}{
		"no-uri":   {nil, "it has no URI among its alternative names"},
		"two-uris": {[]string{"spiffe://example.org/agent/two-uris", "spiffe://example.org/agent/other"}, "it has 2 URIs among its alternative names: issue it with one"},
		"no-id":    {[]string{"https://example.org/agent/no-id"}, "is no SPIFFE ID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := principal.Mark()
			s := startSite(t, name, lab.AgentOptions{Principal: principal, Certificates: certificates(shared.CA, pairWith(t, c.uris))})
			says(t, s.agent, c.want, "Connection to principal failed; retrying")
			saysNow(t, principal, mark, c.want)
		})
	}
}

// pairWith is a client certificate with these URIs.
func pairWith(t *testing.T, uris []string) pki.Pair {
	t.Helper()
	ca := shared.CA.PEM()
	issuer, err := tls.X509KeyPair(ca.Certificate, ca.Key)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	template.Subject.CommonName = "somebody"
	for _, text := range uris {
		uri, err := url.Parse(text)
		require.NoError(t, err)
		template.URIs = append(template.URIs, uri)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, issuer.Leaf, &key.PublicKey, issuer.PrivateKey)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pki.Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// putIdentities has the table say which SPIFFE IDs an agent has.
func putIdentities(t *testing.T, agent string, ids ...string) {
	t.Helper()
	client := shared.Hub.Kubernetes.CoreV1().ConfigMaps(lab.Namespace)
	table, err := client.Get(t.Context(), "argocd-agent-identities", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		table, err = client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-identities"}}, metav1.CreateOptions{})
	}
	require.NoError(t, err)
	if table.Data == nil {
		table.Data = make(map[string]string)
	}
	table.Data[agent] = strings.Join(ids, "\n")
	_, err = client.Update(t.Context(), table, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// Each cluster has a trust domain, which names its agent; and where the table says otherwise, the table holds.
func TestTableOfSPIFFEIDs(t *testing.T) {
	t.Parallel()
	name := unique("by-domain")
	m := newMesh(t, name+".spokes.test", "spiffe://{agent}.spokes.test/ns/argocd/sa/argocd-agent")
	id := "spiffe://" + name + ".spokes.test/ns/argocd/sa/argocd-agent"
	s, _ := m.join(t, m.spoke, name, id, lab.AgentOptions{})
	s.connected(t)
	s.newTwin("by-trust-domain").create(t).arrives(t)

	const moved = "spiffe://elsewhere.test/ns/argocd/sa/argocd-agent"
	because := "is not one of those that the hub's table has for agent " + name + ": add it there"
	cutOff := func(ids ...string) {
		mark, seen := s.agent.Mark(), m.principal.Mark()
		putIdentities(t, name, ids...)
		saysNow(t, s.agent, mark, because)
		saysNow(t, m.principal, seen, "Loaded table of SPIFFE IDs", `An agent disconnected" component=agents agent=`+name, because)
	}
	cutOff(moved)
	mark := s.agent.Mark()
	putIdentities(t, name, moved, id)
	saysNow(t, s.agent, mark, lab.ConnectedAgentLine)
	s.newTwin("by-table").create(t).arrives(t)
	cutOff(moved)
}
