package cluster_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// A server that refuses says why, and client-go alone would say the code only.
func TestVersionIsRefusedInTheServersWords(t *testing.T) {
	t.Parallel()
	refuses := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !refuses {
			answer(t, w, http.StatusOK, version.Info{GitVersion: "v1.36.1"})
			return
		}
		answer(t, w, http.StatusBadGateway, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusBadGateway, Message: "agent berlin is away",
		})
	}))
	t.Cleanup(server.Close)
	_, err := cluster.VersionOf(t.Context(), &rest.Config{Host: server.URL})
	require.ErrorContains(t, err, "agent berlin is away")
	refuses = false
	about, err := cluster.VersionOf(t.Context(), &rest.Config{Host: server.URL})
	require.NoError(t, err)
	require.Equal(t, "Kubernetes v1.36.1", about)
}
