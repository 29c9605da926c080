package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Who does not use Helm has folders, which are rendered from the charts.
func TestManifests(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	made, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/manifests", out).CombinedOutput()
	require.NoError(t, err, "%s", made)
	t.Run("are applied", func(t *testing.T) { manifestsAreApplied(t, out) })
	t.Run("are those of the folder istio", func(t *testing.T) { istioFolderIs(t, filepath.Join(out, "istio")) })
}

// manifestsAreApplied: the API server takes them as they are, with a namespace and an address of somebody's own.
func manifestsAreApplied(t *testing.T, out string) {
	t.Helper()
	for _, side := range []string{"hub", "spoke"} {
		mine := filepath.Join(out, "my-"+side)
		require.NoError(t, os.Mkdir(mine, 0o755))
		kustomization := "resources: [../" + side + "]\nnamespace: " + newNamespace(t, restricted()) + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(mine, "kustomization.yaml"), []byte(kustomization), 0o644))
		require.Contains(t, apply(t, shared.Spoke("a").Cluster, mine), "deployment.apps/argocd-agent-")
	}
}

// istioFolderIs: the folder istio/ is what the charts make. It is for who runs a mesh, and does not install the charts.
func istioFolderIs(t *testing.T, out string) {
	t.Helper()
	kept := filepath.Join("..", "..", "istio")
	if *update {
		require.NoError(t, os.RemoveAll(kept))
		require.NoError(t, os.CopyFS(kept, os.DirFS(out)))
	}
	difference, err := exec.CommandContext(t.Context(), "diff", "-r", kept, out).CombinedOutput()
	require.NoError(t, err, "go test ./charts -update writes the folder istio/:\n%s", difference)
	for _, side := range []string{"hub", "spoke"} {
		require.Contains(t, apply(t, shared.Hub.Cluster, filepath.Join(kept, side)), "authorizationpolicy.security.istio.io/argocd-agent-")
	}
}

// apply has an API server look at a folder of Kustomize's, and returns what kubectl says.
func apply(t *testing.T, c *cluster.Cluster, folder string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shared.Tools.Program(toolset.Kubectl), "apply", "--server-side", "--dry-run=server", "--validate=strict", "-k", folder)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	applied, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", applied)
	require.NotContains(t, string(applied), "Warning")
	return string(applied)
}
