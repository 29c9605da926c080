package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
