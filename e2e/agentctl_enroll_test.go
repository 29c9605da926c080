package e2e_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// One command on the hub and one on the spoke set up an agent, and no private key is carried from one to the other. The agent runs as the
// Pod says that comes of it, with the rights of its ServiceAccount.
func TestManifestWithATokenIsAllThatASpokeNeeds(t *testing.T) {
	t.Parallel()
	s := newIssuing(t).installs(t, unique("joining"))
	s.newTwin("guestbook").create(t).arrives(t)
	require.Equal(t, corev1.SecretTypeTLS, secretOf(t, s.spoke, s.name, "argocd-agent-client-tls").Type, "the agent has made its own key")
}

// installs sets up an agent on a spoke by a Kustomize folder with a token, and returns when it is connected.
func (p issuing) installs(t *testing.T, name string, args ...string) *site {
	t.Helper()
	spoke := shared.Spoke("b")
	at, port, err := net.SplitHostPort(p.Address)
	require.NoError(t, err)
	folder := filepath.Join(t.TempDir(), name)
	said, err := shared.Agentctl(t.Context(), append([]string{
		"agent", "create", name, "--agent-namespace", name, "--output-manifest", folder, "--server-address", at,
		"--server-port", port, "--enroll", "--enrollment-port", strconv.Itoa(p.enrollment), "--image", "registry.example.com/agent:v1",
	}, args...)...)
	require.NoError(t, err)
	require.NotContains(t, said, name+".", "no token is shown")
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(name)))

	restricted := namespace(name)
	restricted.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	require.NoError(t, spoke.Apply(t.Context(), restricted))
	out, err := exec.CommandContext(t.Context(), shared.Tools.Program(toolset.Kubectl), "--kubeconfig", spoke.Kubeconfig, "apply", "--server-side", "-k", folder).CombinedOutput()
	require.NoError(t, err, "%s", out)

	s := &site{name: name, spoke: spoke, agent: &lab.Agent{Process: asPod(t, spoke, name)}}
	return s.connected(t)
}

// asPod starts the agent as its Deployment's Pod says, in place of the Pod, whose containers are fake.
func asPod(t *testing.T, spoke *lab.Cluster, name string) *process.Process {
	t.Helper()
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	_, err := spoke.Wait(t.Context(), cluster.Selection{Resource: deployments, Namespace: name, Name: "argocd-agent-agent"}, func(d *unstructured.Unstructured) bool {
		if d == nil {
			return false
		}
		available, _, _ := unstructured.NestedInt64(d.Object, "status", "availableReplicas")
		return available == 1
	})
	require.NoError(t, err)
	running, err := spoke.Kubernetes.CoreV1().Pods(name).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=argocd-agent-agent"})
	require.NoError(t, err)
	require.Len(t, running.Items, 1)
	pod := &running.Items[0]
	container := pod.Spec.Containers[0]
	require.Equal(t, "registry.example.com/agent:v1", container.Image)

	program := host.Program{
		Name: name + "-pod", Path: filepath.Join(filepath.Dir(shared.AgentctlPath()), "agent"), Ports: 2, Env: environmentOf(t, spoke, name, container),
		Args: func(ports []int) []string { // the Pod has addresses of its own, and a token in a file
			return []string{
				"--kubeconfig=" + accountKubeconfig(t, spoke, name, pod.Spec.ServiceAccountName),
				"--metrics-port=" + strconv.Itoa(ports[0]), "--healthz-port=" + strconv.Itoa(ports[1]),
			}
		},
	}
	agent, _, err := shared.Host.Launch(t.Context(), program)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, agent.Stop) })
	return agent
}

// environmentOf returns what a kubelet would give a container.
func environmentOf(t *testing.T, spoke *lab.Cluster, namespace string, container corev1.Container) []string {
	t.Helper()
	var all []string
	for _, variable := range container.Env {
		switch from := variable.ValueFrom; {
		case from == nil:
			all = append(all, variable.Name+"="+variable.Value)
		case from.ConfigMapKeyRef != nil:
			found, err := spoke.Kubernetes.CoreV1().ConfigMaps(namespace).Get(t.Context(), from.ConfigMapKeyRef.Name, metav1.GetOptions{})
			require.NoError(t, err)
			if value, ok := found.Data[from.ConfigMapKeyRef.Key]; ok {
				all = append(all, variable.Name+"="+value)
			}
		case from.SecretKeyRef.Name == "argocd-agent-enrollment":
			value, ok := secretOf(t, spoke, namespace, from.SecretKeyRef.Name).Data[from.SecretKeyRef.Key]
			require.True(t, ok, from.SecretKeyRef.Key)
			all = append(all, variable.Name+"="+string(value))
		}
	}
	return all
}

// accountKubeconfig writes a kubeconfig with a token of a ServiceAccount.
func accountKubeconfig(t *testing.T, spoke *lab.Cluster, namespace, account string) string {
	t.Helper()
	token, err := spoke.Kubernetes.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := clientcmd.LoadFromFile(spoke.Kubeconfig)
	require.NoError(t, err)
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &api.AuthInfo{Token: token.Status.Token}
	}
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}
