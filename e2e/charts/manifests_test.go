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

// manifests renders the folders for who does not use Helm.
func manifests(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	made, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/manifests", out).CombinedOutput()
	require.NoError(t, err, "%s", made)
	return out
}

// Who does not use Helm applies folders, which the API server takes as they are, with a namespace and an address of their own.
func TestManifestsAreApplied(t *testing.T) {
	t.Parallel()
	out := manifests(t)
	for _, side := range []string{"hub", "spoke"} {
		mine := filepath.Join(out, "my-"+side)
		require.NoError(t, os.Mkdir(mine, 0o755))
		kustomization := "resources: [../" + side + "]\nnamespace: " + newNamespace(t, restricted()) + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(mine, "kustomization.yaml"), []byte(kustomization), 0o644))
		require.Contains(t, apply(t, shared.Spoke("a").Cluster, mine), "deployment.apps/argocd-agent-")
	}
}

// The folder istio/ is what the charts make: what somebody applies who runs a mesh, and no user of theirs.
func TestIstioFolderIsThatOfTheCharts(t *testing.T) {
	t.Parallel()
	out := filepath.Join(manifests(t), "istio")
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
