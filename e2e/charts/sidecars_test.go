package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// kubeproxy and redisproxy beside argocd-server: by a component for Argo CD's own manifests, which a real API server takes, and by values for Argo
// CD's chart with the same containers.
func TestSidecarsOfArgoCDServer(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, restricted())
	dir := t.TempDir()
	component, err := filepath.Abs(filepath.Join("..", "..", "deploy", "argocd-server"))
	require.NoError(t, err)
	relative, err := filepath.Rel(dir, component) // Kustomize takes no absolute path
	require.NoError(t, err)
	manifests, err := os.ReadFile(shared.Tools.File(toolset.ArgoCDManifests))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "argocd.yaml"), manifests, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"),
		[]byte("resources: [argocd.yaml]\nnamespace: "+namespace+"\ncomponents: ["+relative+"]\n"), 0o644))
	cmd := exec.CommandContext(t.Context(), shared.Tools.Program(toolset.Kubectl), "kustomize", dir)
	text, err := cmd.Output()
	require.NoError(t, err)
	objects, err := cluster.Parse(text)
	require.NoError(t, err)
	var server *unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == "Deployment" && object.GetName() == "argocd-server" {
			server = object
		}
	}
	require.NotNil(t, server)
	require.NoError(t, dryRun(t.Context(), shared.Spoke("a").Cluster, server))
	require.NoError(t, dryRun(t.Context(), shared.Spoke("a").Cluster, podOf(t, server)))

	var values struct {
		Server struct {
			ExtraContainers []map[string]any `json:"extraContainers"`
		} `json:"server"`
	}
	written, err := os.ReadFile(filepath.Join(component, "values.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(written, &values))
	byName := make(map[any]map[string]any)
	for _, container := range containersOf(server) {
		byName[container["name"]] = container
	}
	require.Len(t, values.Server.ExtraContainers, 2)
	for _, container := range values.Server.ExtraContainers {
		wanted, err := yaml.Marshal(container)
		require.NoError(t, err)
		is, err := yaml.Marshal(byName[container["name"]])
		require.NoError(t, err)
		require.Equal(t, string(wanted), string(is))
	}
}
