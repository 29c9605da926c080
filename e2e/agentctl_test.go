package e2e_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
)

// pairOf returns the certificate of a Secret that has its key too.
func pairOf(t *testing.T, s *corev1.Secret) *x509.Certificate {
	t.Helper()
	loaded, err := pki.Pair{Certificate: s.Data["tls.crt"], Key: s.Data["tls.key"]}.TLS()
	require.NoError(t, err)
	return loaded.Leaf
}

// The steps of argocd-agent's documents lead to Secrets of the names and forms that these show.
func TestHubAndAgentSetUpAsDocumented(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.does(t,
		"pki init --principal-context hub --principal-namespace "+a.hub,
		"pki issue principal --principal-context hub --principal-namespace "+a.hub+" --ip 127.0.0.1,192.0.2.1 --dns localhost,hub.example.com --upsert",
		"pki issue resource-proxy --principal-context hub --ip 127.0.0.1 --dns localhost --upsert",
		"jwt create-key --principal-context hub --upsert --key-size 2048",
	)
	got := a.does(t, "agent create munich --namespace "+a.hub+" --resource-proxy-server argocd-agent-resource-proxy:9090 -l region=eu,tier=web"+
		" --resource-proxy-username munich --resource-proxy-password secret")
	require.Contains(t, got.warnings, "--resource-proxy-password does nothing")
	require.Contains(t, got.warnings, "kubectl create namespace munich --context hub")
	a.does(t, "pki issue agent munich --principal-context hub --agent-context spoke-b --agent-namespace "+a.spoke+" --upsert",
		"pki propagate --principal-context hub --agent-context spoke-b")

	caSecret := a.secret(t, "argocd-agent-ca")
	require.Equal(t, corev1.SecretTypeTLS, caSecret.Type)
	require.Len(t, caSecret.Data, 2)
	ca := pairOf(t, caSecret)
	require.True(t, ca.IsCA)
	require.WithinDuration(t, time.Now().AddDate(0, 0, 3650), ca.NotAfter, time.Hour)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for _, c := range []struct {
		secret *corev1.Secret
		common string
		usage  x509.ExtKeyUsage
		names  []string
	}{
		{a.secret(t, "argocd-agent-principal-tls"), "argocd-agent-principal", x509.ExtKeyUsageServerAuth,
			[]string{"hub.example.com", "localhost", "192.0.2.1", "127.0.0.1", "argocd-agent-principal", "argocd-agent-principal." + a.hub + ".svc"}},
		{a.secret(t, "argocd-agent-resource-proxy-tls"), "argocd-agent-resource-proxy", x509.ExtKeyUsageServerAuth,
			[]string{"localhost", "argocd-agent-resource-proxy", "argocd-agent-resource-proxy." + a.hub + ".svc.cluster.local"}},
		{a.secret(t, "argocd-agent-kubeproxy-tls"), "argocd-agent-kubeproxy", x509.ExtKeyUsageClientAuth, nil},
		{a.secret(t, "argocd-agent-redisproxy-tls"), "argocd-agent-redisproxy", x509.ExtKeyUsageClientAuth, nil},
		{a.agents(t, "argocd-agent-client-tls"), "munich", x509.ExtKeyUsageClientAuth, nil},
	} {
		require.Equal(t, corev1.SecretTypeTLS, c.secret.Type)
		require.Equal(t, caSecret.Data["tls.crt"], c.secret.Data["ca.crt"])
		leaf := pairOf(t, c.secret)
		require.Equal(t, c.common, leaf.Subject.CommonName)
		require.WithinDuration(t, time.Now().AddDate(0, 0, 180), leaf.NotAfter, time.Hour)
		for _, name := range append(c.names, "")[:max(1, len(c.names))] {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{c.usage}})
			require.NoError(t, err)
		}
	}
	trusted := a.agents(t, "argocd-agent-ca")
	require.Equal(t, corev1.SecretTypeOpaque, trusted.Type)
	require.Equal(t, map[string][]byte{"ca.crt": caSecret.Data["tls.crt"]}, trusted.Data, "the key stays on the hub")

	a.isTheClusterOf(t, "munich", caSecret.Data["tls.crt"])
	key := a.secret(t, "argocd-agent-jwt")
	require.Equal(t, corev1.SecretTypeOpaque, key.Type)
	block, _ := pem.Decode(key.Data["jwt.key"])
	require.Equal(t, "PRIVATE KEY", block.Type, "PKCS #8")
	keys, err := token.ParseKeys(key.Data["jwt.key"])
	require.NoError(t, err)
	require.True(t, keys.CanSign())
}

// isTheClusterOf looks at the cluster Secret of an agent that was created with the labels region=eu,tier=web.
func (a admin) isTheClusterOf(t *testing.T, name string, ca []byte) {
	t.Helper()
	cluster := a.secret(t, "cluster-"+name)
	require.Equal(t, corev1.SecretTypeOpaque, cluster.Type)
	require.Equal(t, map[string]string{
		"argocd.argoproj.io/secret-type": "cluster", "argocd-agent.argoproj-labs.io/agent-name": name, "region": "eu", "tier": "web",
	}, cluster.Labels)
	require.Equal(t, map[string]string{"argocd.argoproj.io/skip-reconcile": "true", "managed-by": "argocd-agent"}, cluster.Annotations)
	require.Equal(t, name, string(cluster.Data["name"]))
	require.Equal(t, "https://argocd-agent-resource-proxy:9090?agentName="+name, string(cluster.Data["server"]))
	var config struct {
		TLS struct {
			Insecure           *bool
			CertData, KeyData  []byte
			CAData, ServerName []byte
		} `json:"tlsClientConfig"`
	}
	require.NoError(t, json.Unmarshal(cluster.Data["config"], &config))
	require.Equal(t, ca, config.TLS.CAData)
	require.False(t, *config.TLS.Insecure)
	pair, err := pki.Pair{Certificate: config.TLS.CertData, Key: config.TLS.KeyData}.TLS()
	require.NoError(t, err)
	require.Empty(t, pair.Leaf.Subject.String(), "it is not the agent's")
	require.Len(t, pair.Leaf.URIs, 1)
	require.Equal(t, "spiffe://argocd-agent/caller/"+name, pair.Leaf.URIs[0].String())
}

// Steps may be repeated: what is there stays, and is replaced when it is asked for.
func TestAgentctlCommandsAreIdempotent(t *testing.T) {
	t.Parallel()
	a := ready(t)
	a.does(t, "jwt create-key --key-algorithm ecdsa-p256", "pki issue redis-proxy")
	for command, names := range map[string]string{
		"pki init":                 "argocd-agent-ca",
		"pki issue principal":      "argocd-agent-principal-tls argocd-agent-kubeproxy-tls argocd-agent-redisproxy-tls",
		"pki issue resource-proxy": "argocd-agent-resource-proxy-tls",
		"pki issue redis-proxy":    "argocd-redis-proxy-tls",
		"jwt create-key":           "argocd-agent-jwt",
		"agent create berlin":      "cluster-berlin",
	} {
		for name := range strings.FieldsSeq(names) {
			before := a.secret(t, name)
			got := a.does(t, command)
			require.Contains(t, got.output, "Secret "+a.hub+"/"+name+" on the hub (context hub): unchanged: ")
			require.Empty(t, got.warnings)
			require.Equal(t, before.ResourceVersion, a.secret(t, name).ResourceVersion, name)
			flag := " --upsert"
			if command == "pki init" {
				continue // see TestPKIInitForceReplacesCA
			}
			require.Contains(t, a.does(t, command+flag).output, name+" on the hub (context hub): replaced: ")
			require.NotEqual(t, before.Data, a.secret(t, name).Data, name)
			require.Equal(t, before.UID, a.secret(t, name).UID, name)
		}
	}
	before, trust := a.agents(t, "argocd-agent-client-tls"), a.agents(t, "argocd-agent-ca")
	for _, command := range []string{"pki issue agent berlin --agent-context spoke-b", "pki propagate --agent-context spoke-b"} {
		require.Contains(t, a.does(t, command).output, "on the agent's cluster (context spoke-b): unchanged: ")
	}
	require.Equal(t, before.ResourceVersion, a.agents(t, "argocd-agent-client-tls").ResourceVersion)
	require.Equal(t, trust.ResourceVersion, a.agents(t, "argocd-agent-ca").ResourceVersion)
	a.does(t, "pki issue agent berlin --agent-context spoke-b -u")
	require.NotEqual(t, before.Data, a.agents(t, "argocd-agent-client-tls").Data)
	require.Equal(t, trust.Data, a.agents(t, "argocd-agent-ca").Data)
	require.Empty(t, a.inspects(t, "berlin --agent-context spoke-b").Problems)
}

// Asked for less than what is there is no difference, for instance without the names that were asked for before.
func TestIssueKeepsCertificateThatIsStillSufficient(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.does(t, "pki init", "pki issue resource-proxy --dns one.example.com,two.example.com --ip 192.0.2.1 --days 90")
	require.Contains(t, a.does(t, "pki issue resource-proxy --dns two.example.com").output, "unchanged")
	a.fails(t, "pki issue resource-proxy --dns two.example.com,three.example.com --ip 192.0.2.2",
		"it exists already, and is not as wanted: it is not for three.example.com, 192.0.2.2: replace it with --upsert")
	a.does(t, "pki issue resource-proxy --dns three.example.com --upsert")
	leaf := pairOf(t, a.secret(t, "argocd-agent-resource-proxy-tls"))
	require.NotContains(t, leaf.DNSNames, "one.example.com")
	require.Contains(t, leaf.DNSNames, "three.example.com")
}

// Who runs the same command at each upgrade has a certificate with all names that were asked for, and none of another CA replaced.
func TestRenewedCertificateKeepsItsNames(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	const command = "pki issue principal --renew --days 90"
	a.does(t, "pki init", command+" --dns one.example.com --ip 192.0.2.1")
	require.Equal(t, 3, strings.Count(a.does(t, command+" --dns one.example.com").output, "unchanged"))
	printed := a.does(t, command+" --dns two.example.com --ip 192.0.2.2").output
	require.Equal(t, 1, strings.Count(printed, "replaced"), printed)
	leaf := pairOf(t, a.secret(t, "argocd-agent-principal-tls"))
	for _, name := range []string{"argocd-agent-principal", "one.example.com", "192.0.2.1", "two.example.com", "192.0.2.2"} {
		require.NoError(t, leaf.VerifyHostname(name))
	}
	a.does(t, "pki init --force")
	a.fails(t, command+" --dns three.example.com", "it exists already, and is not as wanted: it is not for three.example.com")
	require.Equal(t, leaf.Raw, pairOf(t, a.secret(t, "argocd-agent-principal-tls")).Raw)
}

// Where nobody may reach the agent's cluster from the hub, its Secrets are handed over, for example by GitOps.
func TestPrintedSecretsAreWhatWouldBeWritten(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.does(t, "pki init")
	cmd := exec.CommandContext(t.Context(), shared.AgentctlPath(), strings.Fields("pki issue agent berlin -o yaml --agent-context nowhere")...)
	cmd.Env = a.environment
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	printed, err := cmd.Output()
	require.NoError(t, err, warnings.String())
	require.NotContains(t, warnings.String(), "PRIVATE KEY")
	for _, secret := range []string{"argocd-agent-ca", "argocd-agent-client-tls"} {
		require.Contains(t, warnings.String(), "Secret "+a.spoke+"/"+secret+" on the output: printed: ")
	}
	require.NoError(t, shared.Spoke("b").ApplyYAML(t.Context(), printed, a.spoke))
	a.does(t, "pki issue resource-proxy", "agent create berlin")
	require.Contains(t, a.does(t, "pki issue agent berlin --agent-context spoke-b").output, "argocd-agent-client-tls on the agent's cluster (context spoke-b): unchanged: ")
	require.NotContains(t, a.agents(t, "argocd-agent-ca").Data, "tls.key", "the CA's key stays where it is")
}

func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.does(t, "pki init")
	require.Contains(t, a.does(t, "pki issue resource-proxy --dry-run").output, "argocd-agent-resource-proxy-tls on the hub (context hub): created (dry run): ")
	got := a.does(t, "pki issue agent berlin --agent-context spoke-b --dry-run").output
	require.Contains(t, got, "argocd-agent-ca on the agent's cluster (context spoke-b): created (dry run): ")
	require.Contains(t, got, "argocd-agent-client-tls on the agent's cluster (context spoke-b): created (dry run): ")
	for _, command := range []string{"pki issue resource-proxy", "pki issue agent berlin --agent-context spoke-b"} {
		require.Contains(t, a.does(t, command).output, ": created: ", "nothing was there")
		require.Contains(t, a.does(t, command+" --dry-run --upsert").output, ": replaced (dry run): ")
		require.Contains(t, a.does(t, command).output, ": unchanged: ")
	}
}

func TestAgentctlKeyAlgorithms(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.does(t, "pki init --key-algorithm ecdsa-p384 --days 30", "pki issue component kubeproxy --key-size 2048 --days 7",
		"agent create berlin --key-algorithm ed25519")
	require.Equal(t, x509.ECDSA, pairOf(t, a.secret(t, "argocd-agent-ca")).PublicKeyAlgorithm)
	leaf := pairOf(t, a.secret(t, "argocd-agent-kubeproxy-tls"))
	require.Equal(t, x509.RSA, leaf.PublicKeyAlgorithm)
	require.WithinDuration(t, time.Now().AddDate(0, 0, 7), leaf.NotAfter, time.Hour)
	berlin := a.inspects(t, "berlin")
	require.Equal(t, "Ed25519", berlin.Certificate.Key)
	require.WithinDuration(t, time.Now().AddDate(0, 0, 30), berlin.Certificate.NotAfter, time.Hour, "none outlives its CA")
	a.fails(t, "pki issue component redisproxy --days 31", "choose an earlier end, or renew the CA first")
}

// An agent runs with what argocd-agentctl makes, and takes a renewal without a restart.
func TestAgentConnectsWithCertificatesFromAgentctl(t *testing.T) {
	t.Parallel()
	name := unique("by-the-tool")
	require.NoError(t, shared.Spoke("b").Apply(t.Context(), namespace(name)))
	issue := func(more ...string) {
		_, err := shared.Agentctl(t.Context(), append([]string{"pki", "issue", "agent", name, "--agent-context=spoke-b", "--agent-namespace=" + name}, more...)...)
		require.NoError(t, err)
	}
	issue()
	s := startSite(t, name, lab.AgentOptions{Name: "b"}).connected(t) // a name by which the lab adds no files
	s.newTwin("before").create(t).arrives(t)
	mark := s.agent.Mark()
	issue("--upsert")
	saysNow(t, s.agent, mark, "Certificate renewed; reconnecting", lab.ConnectedAgentLine)
	s.newTwin("after").create(t).arrives(t)
}
