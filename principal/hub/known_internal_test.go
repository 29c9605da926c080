package hub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// apiServer answers for the metadata of objects, by their paths.
func apiServer(t *testing.T, answer http.HandlerFunc) rest.Interface {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client.CoreV1().RESTClient()
}

// answerStatus answers as an API server does.
func answerStatus(t *testing.T, w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	require.NoError(t, json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
	}))
}

func TestHubKnowsAgentsThatItHasSomethingOf(t *testing.T) {
	t.Parallel()
	h, _ := newTestHubWithMapping(t, byDestination())
	h.options.API = apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		object := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
		switch r.URL.Path {
		case "/api/v1/namespaces/leaving":
			now := metav1.NewTime(time.Now())
			object.DeletionTimestamp = &now
		case "/api/v1/namespaces/rome":
		case "/api/v1/namespaces/behind-a-proxy":
			http.NotFound(w, r)
			return
		default:
			answerStatus(t, w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object) // to a client that has hung up, if it does not work
	})
	var r revision
	h.writeApplication(t, &r, "team-a/shop", "paris")
	for agent, want := range map[string]bool{"berlin": true, "paris": true, "rome": true, "oslo": false, "leaving": false} {
		known, err := h.Knows(t.Context(), agent)
		require.NoError(t, err)
		require.Equal(t, want, known, agent)
	}
	_, err := h.Knows(t.Context(), "behind-a-proxy")
	require.ErrorContains(t, err, "read /api/v1/namespaces/behind-a-proxy", "that answer was not the API server's")
	h.connect("oslo", facets.Managed)
	known, err := h.Knows(t.Context(), "oslo")
	require.NoError(t, err)
	require.False(t, known, "that it was here before says nothing")
}
