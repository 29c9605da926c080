package cluster_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// open returns a place whose API server answers by the handler.
func open(t *testing.T, handler http.HandlerFunc) *cluster.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
current-context: hub
clusters: [{name: hub, cluster: {server: "`+server.URL+`"}}]
users: [{name: somebody, user: {token: secret}}]
contexts: [{name: hub, context: {cluster: hub, user: somebody}}]
`), 0o600))
	p, err := cluster.New(cluster.Options{Title: "the hub", Kubeconfig: kubeconfig, Namespace: "argocd", ContextFlag: "--principal-context"})
	require.NoError(t, err)
	return p
}

// answer answers as an API server does.
func answer(t *testing.T, w http.ResponseWriter, code int, object any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		t.Errorf("answer: %v", err)
	}
}

func status(reason metav1.StatusReason) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Message: string(reason)}
}

// Whoever writes at the same time is not overwritten, and that is said.
func TestConflictingWriteIsReported(t *testing.T) {
	t.Parallel()
	there := corev1.Secret{
		TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "argocd", ResourceVersion: "7"},
	}
	for name, handler := range map[string]http.HandlerFunc{
		"by a change": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				answer(t, w, http.StatusOK, there)
				return
			}
			body, err := io.ReadAll(r.Body)
			sent := &corev1.Secret{}
			if err == nil {
				_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, sent)
			}
			if err != nil || sent.ResourceVersion != "7" || r.Method != http.MethodPut {
				t.Errorf("%s of revision %q: %v", r.Method, sent.ResourceVersion, err)
			}
			answer(t, w, http.StatusConflict, status(metav1.StatusReasonConflict))
		},
		"by a creation": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				answer(t, w, http.StatusNotFound, status(metav1.StatusReasonNotFound))
				return
			}
			answer(t, w, http.StatusConflict, status(metav1.StatusReasonAlreadyExists))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, handler).Put(t.Context(), cluster.Change{
				Name: "x", Replace: true, Flag: "--upsert",
				Differs: func(*corev1.Secret) []string { return []string{"it is old"} },
				Write:   func(s *corev1.Secret) error { s.Data = map[string][]byte{"a": []byte("b")}; return nil },
			})
			require.ErrorContains(t, err, "Secret argocd/x on the hub (context hub): another client wrote it at the same time: try again")
		})
	}
}

// Who may not know which namespaces there are is not told that one is missing.
func TestForbiddenNamespacesAreAssumedToExist(t *testing.T) {
	t.Parallel()
	p := open(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, http.StatusForbidden, status(metav1.StatusReasonForbidden))
	})
	has, err := p.Namespaces(t.Context())
	require.NoError(t, err)
	there, err := has(t.Context(), "berlin")
	require.NoError(t, err)
	require.True(t, there)
	_, err = p.Get(t.Context(), "x")
	require.ErrorContains(t, err, "ask for that right, or choose a context that has it by --principal-context")
}
