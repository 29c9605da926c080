package cluster_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Every running pod of a Service is asked, at the port that the Service leads to, and who does not answer is named.
func TestPodsOfServiceAreAsked(t *testing.T) {
	t.Parallel()
	pod := func(name string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: name}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8123}}}}},
		}
	}
	for name, c := range map[string]struct {
		target  intstr.IntOrString
		port    string
		pods    []corev1.Pod
		answers []string
		err     string
	}{
		"a number":          {intstr.FromInt32(8001), "8001", []corev1.Pod{pod("a", corev1.PodRunning), pod("b", corev1.PodPending)}, []string{"a"}, ""},
		"a name":            {intstr.FromString("metrics"), "8123", []corev1.Pod{pod("a", corev1.PodRunning), pod("c", corev1.PodRunning)}, []string{"a", "c"}, ""},
		"another name":      {intstr.FromString("web"), "8000", []corev1.Pod{pod("a", corev1.PodRunning)}, []string{"a"}, ""},
		"one is refused":    {intstr.FromInt32(8001), "8001", []corev1.Pod{pod("a", corev1.PodRunning), pod("no", corev1.PodRunning)}, []string{"a"}, "pod no of Service argocd/metrics on the hub"},
		"none of them runs": {intstr.FromInt32(8001), "8001", []corev1.Pod{pod("b", corev1.PodPending)}, nil, "no pod of Service argocd/metrics on the hub (context hub) is running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := open(t, func(w http.ResponseWriter, r *http.Request) {
				switch path := r.URL.Path; path {
				case "/api/v1/namespaces/argocd/services/metrics":
					answer(t, w, http.StatusOK, corev1.Service{
						TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
						Spec:     corev1.ServiceSpec{Selector: map[string]string{"app": "principal"}, Ports: []corev1.ServicePort{{Port: 8000, TargetPort: c.target}}},
					})
				case "/api/v1/namespaces/argocd/pods":
					if r.URL.Query().Get("labelSelector") != "app=principal" {
						t.Errorf("pods are selected by %s", r.URL.RawQuery)
					}
					answer(t, w, http.StatusOK, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: c.pods})
				case "/api/v1/namespaces/argocd/pods/http:a:" + c.port + "/proxy/agents", "/api/v1/namespaces/argocd/pods/http:c:" + c.port + "/proxy/agents":
					_, _ = w.Write([]byte(path[len("/api/v1/namespaces/argocd/pods/http:"):][:1]))
				default:
					answer(t, w, http.StatusForbidden, status(metav1.StatusReasonForbidden))
				}
			})
			got, err := place.AskService(t.Context(), "metrics", "/agents")
			var answers []string
			for _, one := range got {
				answers = append(answers, string(one))
			}
			require.Equal(t, c.answers, answers)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

func TestMissingServiceIsReported(t *testing.T) {
	t.Parallel()
	place := open(t, func(w http.ResponseWriter, _ *http.Request) {
		missing := status(metav1.StatusReasonNotFound)
		missing.Code = http.StatusNotFound
		answer(t, w, http.StatusNotFound, missing)
	})
	_, err := place.AskService(t.Context(), "metrics", "/agents")
	require.EqualError(t, err, "there is no Service argocd/metrics on the hub (context hub)")
}
