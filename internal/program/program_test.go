package program_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/program"
)

// kubeconfig writes one for an API server, and returns its path.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"current-context": "it",
		"contexts":        []any{map[string]any{"name": "it", "context": map[string]any{"cluster": "it"}}},
		"clusters":        []any{map[string]any{"name": "it", "cluster": map[string]any{"server": url}}},
	})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// Whoever reads a program's log, or an API server's, learns which program of which build that was.
func TestProgramSaysWhoItIs(t *testing.T) {
	agents := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents <- r.UserAgent()
		_, _ = w.Write([]byte(`{"major": "1"}`))
	}))
	defer server.Close()
	var log bytes.Buffer
	ctx, base, err := program.Begin(t.Context(), program.Options{
		Name: "argocd-agent-test", Kube: kube.Options{Kubeconfig: kubeconfig(t, server.URL)}, Output: &log,
	})
	require.NoError(t, err)
	require.Contains(t, log.String(), "program=argocd-agent-test version=dev")
	_, err = base.Client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "argocd-agent-test/dev", <-agents)

	klog.FromContext(ctx).Info("hello")
	require.Contains(t, log.String(), "msg=hello component=kubernetes")
	metrics, err := base.Registry.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, metrics)
}

func TestProgramThatCannotBegin(t *testing.T) {
	_, _, err := program.Begin(t.Context(), program.Options{Log: logging.Options{Levels: []string{"loud"}}})
	require.ErrorContains(t, err, "want [component=]level")
	_, _, err = program.Begin(t.Context(), program.Options{Kube: kube.Options{Kubeconfig: "/nowhere"}, Output: &bytes.Buffer{}})
	require.ErrorContains(t, err, "kubeconfig")
}
