package comparison_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/comparison"
)

// An API server that does not list its objects is no difference, and who waits for it learns how to wait longer.
func TestAPIServerThatDoesNotListIsNamedAsTheReason(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/secrets/") {
			http.NotFound(w, r)
			return
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"late": {Server: server.URL}}, Contexts: map[string]*api.Context{"late": {Cluster: "late"}}, CurrentContext: "late",
	}, path))
	late, err := cluster.New(cluster.Options{Title: "the hub", Kubeconfig: path, Namespace: "argocd"})
	require.NoError(t, err)
	_, err = comparison.Compare(t.Context(), late, late, agents.Agent{Name: "berlin", Mode: "managed"}, comparison.Options{Wait: time.Second})
	require.ErrorContains(t, err, "agent berlin: not compared: an API server has not answered within 1s: wait longer by --wait, or look at it: ")
}
