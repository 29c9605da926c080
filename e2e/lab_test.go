package e2e_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// The Pods are fake, but what a person asks of them goes through the API server's real streaming paths.
func TestPodLogsAndExec(t *testing.T) {
	spoke := shared.Spoke("b")
	pod, err := spoke.Kubernetes.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "talker"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "any"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	selection := cluster.Selection{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: pod.Namespace, Name: pod.Name,
	}
	expect(t, spoke, selection, func(pod *unstructured.Unstructured) bool {
		return pod != nil && cluster.Condition(pod, "Ready") == "True"
	})

	log, err := spoke.Kubernetes.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	require.Equal(t, cluster.PodLog, string(log))

	request := spoke.Kubernetes.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: "web", Command: []string{"echo", "hello"}, Stdout: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(spoke.RESTConfig(), "GET", request.URL().String())
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}))
	require.Equal(t, "hello\n", out.String())

	require.NoError(t, spoke.Delete(t.Context(), selection))
	expectGone(t, spoke, selection)
}

// A test that waits for something does not care that an API server was restarted meanwhile.
func TestLabWaitSurvivesAPIServerRestart(t *testing.T) {
	spoke := shared.Spoke("b")
	selection := cluster.Selection{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "default", Name: "late",
	}
	waited := make(chan error, 1)
	watching := make(chan struct{}, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := spoke.Wait(ctx, selection, func(object *unstructured.Unstructured) bool {
			select {
			case watching <- struct{}{}:
			default:
			}
			return object != nil
		})
		waited <- err
	}()
	<-watching
	spoke.APIServer.Kill()
	require.NoError(t, spoke.APIServer.Start(t.Context()))
	create(t, spoke, selection, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "late", "namespace": "default"},
	}})
	require.NoError(t, <-waited)
}
