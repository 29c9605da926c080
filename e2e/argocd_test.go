package e2e_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// What the lab promises before anything of ours runs: an Application that is created on a spoke becomes running Pods.
func TestArgoCDSyncsApplicationOnSpoke(t *testing.T) {
	spoke := shared.Spoke("a")
	app := argocd.Application{
		Namespace: lab.Namespace, Name: "local", RepoURL: shared.Git.URL, Path: lab.GuestbookPath, Into: "local",
	}
	create(t, spoke, argocd.Named(app.Namespace, app.Name), argocd.New(app))

	expect(t, spoke, argocd.Named(app.Namespace, app.Name), argocd.SyncedAndHealthy)
	deployment := expect(t, spoke, cluster.Selection{
		Resource:  schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Namespace: "local", Name: "guestbook",
	}, func(d *unstructured.Unstructured) bool { return d != nil })
	ready, _, err := unstructured.NestedInt64(deployment.Object, "status", "readyReplicas")
	require.NoError(t, err)
	require.EqualValues(t, 2, ready)
}

// An Application in an agent's namespace on the hub is for argocd-server to show, as if its spoke were a cluster there.
func TestArgoCDServerShowsApplicationsOfAgents(t *testing.T) {
	app := argocd.Application{
		Namespace: "b", Name: "shown", RepoURL: shared.Git.URL, Path: lab.ConfigPath, Destination: "b", Into: "shown",
		Manual: true,
	}
	create(t, shared.Hub, argocd.Named(app.Namespace, app.Name), argocd.New(app))

	request, err := http.NewRequestWithContext(
		t.Context(), http.MethodGet, shared.Hub.ArgoCD.URL+"/api/v1/applications/shown?appNamespace=b", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	require.Contains(t, string(body), `"namespace":"b"`)
}
