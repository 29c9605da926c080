package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Who does not use Helm applies folders, which the API server takes as they are, with a namespace and an address of their own.
func TestManifestsAreApplied(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	made, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/manifests", out).CombinedOutput()
	require.NoError(t, err, "%s", made)
	for _, side := range []string{"hub", "spoke"} {
		namespace := newNamespace(t, restricted())
		mine := filepath.Join(out, "my-"+side)
		require.NoError(t, os.Mkdir(mine, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(mine, "kustomization.yaml"), []byte("resources: [../"+side+"]\nnamespace: "+namespace+"\n"), 0o644))
		cmd := exec.CommandContext(t.Context(), shared.Tools.Program(toolset.Kubectl), "apply", "--server-side", "--dry-run=server", "--validate=strict", "-k", mine)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Spoke("a").Kubeconfig)
		applied, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", applied)
		require.NotContains(t, string(applied), "Warning")
		require.Contains(t, string(applied), "deployment.apps/argocd-agent-")
	}
}
