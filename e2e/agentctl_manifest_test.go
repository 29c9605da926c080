package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Who registers an agent on the hub writes what goes to its cluster, and somebody else applies it there.
func TestAgentIsSetUpByAManifest(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	folder := filepath.Join(t.TempDir(), "oslo")
	a.does(t, "pki init", "pki issue principal", "pki issue resource-proxy",
		"agent create oslo --mode autonomous --output-manifest "+folder+" --server-address hub.example.com")
	a.fails(t, "agent create oslo --output-manifest "+folder+" --server-address hub.example.com", "is not empty")
	for _, name := range []string{"namespace", "rbac", "params", "secrets"} {
		text, err := os.ReadFile(filepath.Join(folder, name+".yaml"))
		require.NoError(t, err)
		require.NoError(t, shared.Spoke("b").ApplyYAML(t.Context(), text, a.spoke), name)
	}

	own := a.agents(t, "argocd-agent-client-tls")
	pair, err := pki.Pair{Certificate: own.Data["tls.crt"], Key: own.Data["tls.key"]}.TLS()
	require.NoError(t, err)
	require.Equal(t, "oslo", pair.Leaf.Subject.CommonName)
	require.NoError(t, pair.Leaf.CheckSignatureFrom(a.ca(t).Certificate()))
	trusted := a.agents(t, "argocd-agent-ca")
	require.NotContains(t, trusted.Data, "tls.key", "the CA's key stays on the hub")

	params, err := shared.Spoke("b").Kubernetes.CoreV1().ConfigMaps(a.spoke).Get(t.Context(), "argocd-agent-params", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "autonomous", params.Data["agent.mode"])
	require.Equal(t, "hub.example.com", params.Data["agent.server.address"])
	binding, err := shared.Spoke("b").Kubernetes.RbacV1().RoleBindings(a.spoke).Get(t.Context(), "argocd-agent-agent", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, a.spoke, binding.Subjects[0].Namespace)
}

// Who installs the agent by its chart gets values for it, with a token where the agent is to enroll.
func TestAgentIsSetUpByValues(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	folder := t.TempDir()
	plain, token := filepath.Join(folder, "plain.yaml"), filepath.Join(folder, "token.yaml")
	a.does(t, "pki init", "pki issue principal", "pki issue resource-proxy",
		"agent create oslo --mode autonomous --output-values "+plain+" --server-address hub.example.com",
		"agent create bergen --output-values "+token+" --server-address hub.example.com --server-port 8443 --enroll")
	var values manifest.Values
	read := func(file string) {
		t.Helper()
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		values = manifest.Values{}
		require.NoError(t, yaml.UnmarshalStrict(text, &values))
	}
	read(plain)
	require.Equal(t, manifest.Values{Name: "oslo", Mode: "autonomous", Server: manifest.ServerValues{Address: "hub.example.com", Port: 443}}, values)
	read(token)
	require.Equal(t, "enroll", values.Certificates.Mode)
	require.Regexp(t, `^bergen\.`, values.Certificates.Enroll.Token)
	require.Equal(t, string(a.ca(t).PEM().Certificate), values.Certificates.CA)
	for _, file := range []string{plain, token} {
		cmd := exec.CommandContext(t.Context(), shared.Tools.Program(toolset.Helm), "template", "a", filepath.Join("..", "charts", "argocd-agent-spoke"),
			"--kube-version=1.36.1", "-f", file)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	a.fails(t, "agent create oslo --output-values "+plain+" --server-address hub.example.com", "is there already")
}
