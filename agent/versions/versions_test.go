package versions_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/versions"
)

// spoke is the API server of a spoke.
type spoke struct {
	sets        appsv1.StatefulSetList
	deployments appsv1.DeploymentList
	forbidden   atomic.Bool
}

func (s *spoke) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case s.forbidden.Load():
		http.Error(w, "forbidden", http.StatusForbidden)
		return
	case r.URL.Path == "/version":
		answer = version.Info{GitVersion: "v1.34.1"}
	case r.URL.Query().Get("labelSelector") != "app.kubernetes.io/component=application-controller,app.kubernetes.io/part-of=argocd":
		http.Error(w, "not that of Argo CD", http.StatusBadRequest)
		return
	case r.URL.Path == "/apis/apps/v1/namespaces/argocd/statefulsets":
		answer = s.sets
	case r.URL.Path == "/apis/apps/v1/namespaces/argocd/deployments":
		answer = s.deployments
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func finder(t *testing.T, s *spoke) *versions.Finder {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return versions.New(client, "argocd", slog.New(slog.DiscardHandler))
}

func pod(images ...string) corev1.PodTemplateSpec {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "istio-proxy", Image: "docker.io/istio/proxyv2:1.27.0"}}}
	for _, image := range images {
		spec.Containers = append(spec.Containers, corev1.Container{Name: "argocd-application-controller", Image: image})
	}
	return corev1.PodTemplateSpec{Spec: spec}
}

func TestArgoCDIsWhatItsControllerRuns(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"quay.io/argoproj/argocd:v3.1.0":                       "v3.1.0",
		"registry.example.com:5000/argocd:3.2.0-rc1@sha256:00": "3.2.0-rc1",
		"registry.example.com:5000/argocd@sha256:00":           "",
		"argocd:latest": "",
		"argocd":        "",
	} {
		s := &spoke{}
		s.sets.Items = []appsv1.StatefulSet{{Spec: appsv1.StatefulSetSpec{Template: pod(image)}}}
		require.Equal(t, versions.Versions{Kubernetes: "v1.34.1", ArgoCD: want}, finder(t, s).Find(t.Context()), image)
		s.sets.Items[0].Labels = map[string]string{"app.kubernetes.io/version": "v3.0.9"}
		if want == "" {
			want = "v3.0.9"
		}
		require.Equal(t, want, finder(t, s).Find(t.Context()).ArgoCD, "the label of %s", image)
	}
}

// Where shards are balanced dynamically a Deployment runs, and the StatefulSet is left at no replicas.
func TestControllerMayBeADeployment(t *testing.T) {
	t.Parallel()
	s, none := &spoke{}, int32(0)
	require.Equal(t, versions.Versions{Kubernetes: "v1.34.1"}, finder(t, s).Find(t.Context()), "there is no Argo CD yet")
	s.sets.Items = []appsv1.StatefulSet{{Spec: appsv1.StatefulSetSpec{Replicas: &none, Template: pod("argocd:v3.0.0")}}}
	s.deployments.Items = []appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{Template: pod("argocd:v3.1.0")}}}
	require.Equal(t, "v3.1.0", finder(t, s).Find(t.Context()).ArgoCD)
}

// An agent that may not ask connects all the same, and says what it knew.
func TestWhatIsNotAnsweredStaysAsItWas(t *testing.T) {
	t.Parallel()
	s := &spoke{}
	s.sets.Items = []appsv1.StatefulSet{{Spec: appsv1.StatefulSetSpec{Template: pod("argocd:v3.1.0")}}}
	f := finder(t, s)
	known := f.Find(t.Context())
	s.forbidden.Store(true)
	require.Equal(t, known, f.Find(t.Context()))
	require.Empty(t, finder(t, s).Find(t.Context()))
}
