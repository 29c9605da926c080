package doctor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/doctor"
)

// spoke is an API server that allows all but one verb of Applications.
type spoke struct {
	params        map[string]string
	forbidden     string
	elsewhereOnly bool // that only outside of the agent's namespace
}

func (s spoke) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/version":
		_ = json.NewEncoder(w).Encode(version.Info{GitVersion: "v1.0.0"})
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		body, _ := io.ReadAll(r.Body)
		object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body) // protobuf or JSON
		review, ok := object.(*authorizationv1.SubjectAccessReview)
		if err != nil || !ok {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		review.TypeMeta = metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
		asked := review.Spec.ResourceAttributes
		forbidden := asked.Resource == "applications" && asked.Verb == s.forbidden && (!s.elsewhereOnly || asked.Namespace == "")
		review.Status.Allowed = !forbidden
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/configmaps/argocd-agent-params"):
		_ = json.NewEncoder(w).Encode(corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, Data: s.params})
	default:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	}
}

func TestRightsAreThoseOfTheModeAndTheMapping(t *testing.T) {
	t.Parallel()
	autonomous := map[string]string{"agent.mode": "autonomous"}
	byDestination := map[string]string{"agent.destination-based-mapping": "true"}
	for name, c := range map[string]struct {
		spoke  spoke
		mapped bool
		lacks  string
	}{
		"managed":                           {spoke{forbidden: "create"}, false, "may not create applications.argoproj.io:"},
		"autonomous":                        {spoke{params: autonomous, forbidden: "create"}, false, ""},
		"autonomous, without what all need": {spoke{params: autonomous, forbidden: "patch"}, false, "may not patch applications.argoproj.io:"},
		"its own namespace is enough":       {spoke{forbidden: "watch", elsewhereOnly: true}, false, ""},
		"by destination":                    {spoke{params: byDestination, forbidden: "watch", elsewhereOnly: true}, false, "may not watch applications.argoproj.io in all namespaces"},
		"by destination, as a flag says":    {spoke{forbidden: "watch", elsewhereOnly: true}, true, "may not watch applications.argoproj.io in all namespaces"},
	} {
		server := httptest.NewServer(c.spoke)
		t.Cleanup(server.Close)
		place := at(t, server.URL)
		all := doctor.Examine(t.Context(), doctor.Options{Agent: "berlin", Spoke: place, AgentUser: "agent", ByDestination: c.mapped}, func(checks.Check) {})
		var rights *checks.Check
		for i := range all {
			if strings.HasPrefix(all[i].Name, "rights of the agent") {
				rights = &all[i]
			}
		}
		require.NotNil(t, rights, name)
		if c.lacks == "" {
			require.Equal(t, checks.OK, rights.Result, "%s: %v", name, rights)
			continue
		}
		require.Equal(t, checks.Failed, rights.Result, name)
		require.Contains(t, strings.Join(rights.Problems, "\n"), c.lacks, name)
	}
}

// at returns a client for an API server at an address.
func at(t *testing.T, address string) *cluster.Client {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: spoke
clusters: [{name: spoke, cluster: {server: %q}}]
contexts: [{name: spoke, context: {cluster: spoke, user: ""}}]
`, address), 0o600))
	place, err := cluster.New(cluster.Options{Title: "the agent's cluster", Kubeconfig: kubeconfig, Namespace: "argocd"})
	require.NoError(t, err)
	return place
}
