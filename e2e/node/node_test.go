package node_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
)

// within is a context with a deadline, for what somebody waits for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// newNamespace makes a namespace whose Pods may do no more than the level "restricted".
func newNamespace(t *testing.T, s *installation.Site) string {
	t.Helper()
	made, err := s.Kubernetes.CoreV1().Namespaces().Create(within(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "test-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return made.Name
}

// runs makes a Pod of a shell, and returns it when it is ready.
func runs(t *testing.T, s *installation.Site, namespace, name string, command ...string) *corev1.Pod {
	t.Helper()
	return runsAs(t, s, metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}, "default", command...)
}

// runsAs does so with a ServiceAccount.
func runsAs(t *testing.T, s *installation.Site, meta metav1.ObjectMeta, account string, command ...string) *corev1.Pod {
	t.Helper()
	yes, no := true, false
	pods := s.Kubernetes.CoreV1().Pods(meta.Namespace)
	_, err := pods.Create(within(t), &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			ServiceAccountName: account,
			Containers: []corev1.Container{{
				Name: "shell", Image: node.ShellImage, ImagePullPolicy: corev1.PullNever, Command: command,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.Wait(within(t), podsNamed(meta.Namespace, meta.Name), node.Ready)
	require.NoError(t, err)
	pod, err := pods.Get(within(t), meta.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return pod
}

func podsNamed(namespace, name string) cluster.Selection {
	return cluster.Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: namespace, Name: name}
}

// execute runs a command in a Pod, by the API server and the kubelet, and returns what it prints.
func execute(t *testing.T, s *installation.Site, pod *corev1.Pod, command ...string) (string, error) {
	t.Helper()
	url := s.Kubernetes.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(s.RESTConfig(), "GET", url.String())
	require.NoError(t, err)
	var output, problem bytes.Buffer
	err = executor.StreamWithContext(within(t), remotecommand.StreamOptions{Stdout: &output, Stderr: &problem})
	return output.String() + problem.String(), err
}

func TestPodsLogAndRunCommands(t *testing.T) {
	t.Parallel()
	for _, s := range []*installation.Site{hub, spoke} {
		namespace := newNamespace(t, s)
		pod := runs(t, s, namespace, "speaks", "sh", "-c", "echo hello from $(id -u); sleep 1000000")
		stream, err := s.Kubernetes.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(within(t))
		require.NoError(t, err)
		line := make([]byte, len("hello from 65535\n"))
		_, err = io.ReadFull(stream, line)
		require.NoError(t, err)
		require.NoError(t, stream.Close())
		require.Equal(t, "hello from 65535\n", string(line))
		output, err := execute(t, s, pod, "sh", "-c", "echo $KUBERNETES_SERVICE_HOST; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace")
		require.NoError(t, err, output)
		require.Equal(t, "10.96.0.1\n"+namespace, output)
	}
}

// A Pod finds a Service by its name, and gets to the Pod behind it; a Pod of the other cluster gets to that one by its address.
func TestServicesDNSAndTheOtherCluster(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, hub)
	server := runs(t, hub, namespace, "server", "sh", "-c", "while true; do echo served | nc -l -p 8080; done")
	_, err := hub.Kubernetes.CoreV1().Services(namespace).Create(within(t), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "server"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	client := runs(t, hub, namespace, "client", "sleep", "1000000")
	asks(t, hub, client, "nc server."+namespace+".svc.cluster.local 80 </dev/null")
	elsewhere := runs(t, spoke, newNamespace(t, spoke), "client", "sleep", "1000000")
	asks(t, spoke, elsewhere, "nc "+server.Status.PodIP+" 8080 </dev/null")
}

// asks has a Pod ask until it is served: kube-proxy and DNS learn of a Service a moment after it is made.
func asks(t *testing.T, s *installation.Site, client *corev1.Pod, command string) {
	t.Helper()
	output, err := execute(t, s, client, "sh", "-c", "until "+command+" 2>/dev/null | cat | ( read line && echo $line ); do true; done")
	require.NoError(t, err, output)
	require.Equal(t, "served\n", output)
}

// What a Pod asks of the world goes nowhere.
func TestPodsDoNotLeaveTheMachine(t *testing.T) {
	t.Parallel()
	pod := runs(t, hub, newNamespace(t, hub), "stays", "sleep", "1000000")
	output, err := execute(t, hub, pod, "nc", "192.0.2.1", "80")
	require.Error(t, err)
	require.Contains(t, output, "unreachable")
}

// Pods go on while their kubelet is away, and it knows them when it is back.
//
//nolint:paralleltest // others use the spoke's kubelet
func TestKubeletComesBack(t *testing.T) {
	namespace := newNamespace(t, spoke)
	pod := runs(t, spoke, namespace, "stays", "sleep", "1000000")
	require.NoError(t, spoke.Node.Kubelet.Stop(within(t)))
	require.NoError(t, spoke.Node.Kubelet.Start(within(t)))
	runs(t, spoke, namespace, "new", "sleep", "1000000")
	is, err := spoke.Kubernetes.CoreV1().Pods(namespace).Get(within(t), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.UID, is.UID)
	require.Zero(t, is.Status.ContainerStatuses[0].RestartCount)
}
