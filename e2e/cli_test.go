package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// cli runs Argo CD's own command-line client at the hub's argocd-server.
func cli(t *testing.T, args ...string) string {
	t.Helper()
	return cliAt(t, shared, args...)
}

// cliAt is cli for a lab of a test's own.
func cliAt(t *testing.T, l *lab.Lab, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	args = append(args, "--plaintext", "--auth-token=anybody", "--server="+strings.TrimPrefix(l.Hub.ArgoCD.URL, "http://"))
	cmd := exec.CommandContext(ctx, l.Tools.Program(toolset.ArgoCD), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "argocd %s\n%s\n%s", strings.Join(args, " "), out, l.Report())
	return string(out)
}

// Argo CD's command-line client does with a spoke's application what it does with any.
func TestArgoCDCLIWorksOnSpokes(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, agent string) {
		g := newGuestbook(t, agent, "cli")
		name := agent + "/" + g.declared.Name
		require.Contains(t, cli(t, "app", "get", name, "--output=tree"), g.pod)
		require.Contains(t, cli(t, "app", "resources", name), "Deployment")
		require.Contains(t, cli(t, "app", "manifests", name, "--source=live"), "greeting: hello")
		require.Contains(t, cli(t, "app", "logs", name, "--kind=Pod", "--name="+g.pod), strings.TrimSpace(cluster.PodLog))
		require.Contains(t, cli(t, "app", "actions", "list", name, "--kind=Deployment"), "restart")
		cli(t, "app", "actions", "run", name, "restart", "--kind=Deployment", "--resource-name=guestbook")
		cli(t, "app", "patch-resource", name, "--kind=ConfigMap", "--resource-name=guestbook",
			"--patch", `{"metadata":{"labels":{"by":"the-client"}}}`, "--patch-type=application/merge-patch+json")
		g.configMap().becomes(t, func(object *unstructured.Unstructured) bool { return object.GetLabels()["by"] == "the-client" })
		before := g.configMap().get(t).GetUID()
		cli(t, "app", "delete-resource", name, "--kind=ConfigMap", "--resource-name=guestbook")
		g.configMap().becomes(t, func(object *unstructured.Unstructured) bool { return object.GetUID() != before })
		cli(t, "app", "wait", name, "--timeout=50")
		require.Contains(t, cli(t, "cluster", "list"), agent)
	})
}
