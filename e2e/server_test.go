package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask asks argocd-server on an Application's hub about it, as the UI would: path and query are what follow its name and
// its namespace, body is for JSON. It returns the answer, which must be a good one.
func ask(t *testing.T, method string, app *twin, path, query string, body any) string {
	t.Helper()
	status, answer := request(t, method, app.hub.cluster.ArgoCD.URL+"/api/v1/applications/"+app.declared.Name+path+
		"?appNamespace="+app.declared.Namespace+query, body)
	require.Equal(t, http.StatusOK, status, "%s", answer)
	return answer
}

// request asks for an address, with JSON, and returns the status and the text of the answer.
func request(t *testing.T, method, url string, body any) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(answer)
}

// clickSync asks for a sync.
func clickSync(t *testing.T, app *twin) {
	t.Helper()
	ask(t, http.MethodPost, app, "/sync", "", map[string]any{
		"appNamespace": app.declared.Namespace, "syncOptions": map[string]any{"items": []string{"CreateNamespace=true"}},
	})
}

// clickTerminate asks for the end of an operation.
func clickTerminate(t *testing.T, app *twin) {
	t.Helper()
	ask(t, http.MethodDelete, app, "/operation", "", nil)
}

// clickRefresh asks for a refresh, "normal" or "hard". argocd-server answers when it has been done.
func clickRefresh(t *testing.T, app *twin, kind string) {
	t.Helper()
	ask(t, http.MethodGet, app, "", "&refresh="+kind, nil)
}
