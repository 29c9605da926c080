package node_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/image"
)

// argocd is the namespace of Argo CD on both clusters.
const argocd = "argocd"

// Hub and spoke are installed by their charts, as a user does, and an Application of the hub is on the spoke. The Job's certificates, the rights
// of the ServiceAccounts, the probes, the restricted containers and the Services are what the charts made.
func TestChartsOnRealNodes(t *testing.T) {
	t.Parallel()
	programs := buildPrograms(t)
	for _, s := range []site{hub, spoke} {
		prepareArgoCD(t, s)
		loadPrograms(t, s, programs)
	}
	const agents = "30443"
	begun := time.Now()
	helm(t, hub, "install", "hub", filepath.Join("..", "..", "charts", "argocd-agent-hub"), "--wait", "--timeout=4m",
		"--set=server.address="+hub.node.Address+",principal.service.type=NodePort,principal.service.nodePort="+agents)
	t.Log("the hub is ready after", time.Since(begun))

	agentctl := filepath.Join(programs, "argocd-agentctl")
	apply(t, hub, namespaceObject("berlin"))
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(within(t), agentctl, append(args, "--principal-context=hub")...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+hub.Kubeconfig+string(os.PathListSeparator)+spoke.Kubeconfig, "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	values := filepath.Join(t.TempDir(), "berlin.yaml")
	run("agent", "create", "berlin", "--output-values="+values, "--server-address="+hub.node.Address, "--server-port="+agents)
	run("pki", "issue", "agent", "berlin", "--agent-context=spoke")

	begun = time.Now()
	helm(t, spoke, "install", "spoke", filepath.Join("..", "..", "charts", "argocd-agent-spoke"), "--wait", "--timeout=4m",
		"--values="+values, "--set=resourceProxy.enabled=false")
	t.Log("the spoke is ready after", time.Since(begun))

	apply(t, hub, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "default", "namespace": argocd},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*", "name": "*"}},
		},
	}})
	apply(t, hub, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "guestbook", "namespace": "berlin"},
		"spec": map[string]any{
			"project": "default", "destination": map[string]any{"name": "berlin", "namespace": "guestbook"},
			"source": map[string]any{"repoURL": "https://git.example.com/apps", "path": "guestbook"},
		},
	}})
	_, err := spoke.Wait(within(t), cluster.Selection{
		Resource: schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}, Namespace: argocd, Name: "guestbook",
	}, func(object *unstructured.Unstructured) bool { return object != nil })
	require.NoError(t, err)

	_, err = hub.Kubernetes.CoreV1().ServiceAccounts(argocd).Get(within(t), "argocd-agent-certificates", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "what the Job may do is gone with it: %v", err)
}

// helm runs Helm against a cluster, in Argo CD's namespace.
func helm(t *testing.T, s site, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(within(t), tools.Program(toolset.Helm), append(args, "--namespace="+argocd)...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, explain(s))
}

// explain says what is wrong with the Pods of Argo CD's namespace, as far as Kubernetes and they themselves say it.
func explain(s site) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all bytes.Buffer
	for _, args := range [][]string{
		{"get", "pods,jobs,services", "-o", "wide"}, {"get", "events"},
		{"logs", "--all-containers", "--prefix", "--tail=20", "-l", "app.kubernetes.io/part-of=argocd-agent"}, {"logs", "--all-containers", "--tail=20", "job/argocd-agent-certificates"},
	} {
		cmd := exec.CommandContext(ctx, tools.Program(toolset.Kubectl), append(args, "--namespace="+argocd)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
		cmd.Stdout, cmd.Stderr = &all, &all
		_ = cmd.Run() // it says so itself
	}
	return all.String()
}

// prepareArgoCD makes what the charts need of Argo CD: its definitions, and its namespace with its ConfigMap.
func prepareArgoCD(t *testing.T, s site) {
	t.Helper()
	apply(t, s, namespaceObject(argocd))
	for _, name := range []string{toolset.ApplicationCRD, toolset.AppProjectCRD, toolset.AppSetCRD} {
		text, err := os.ReadFile(tools.File(name))
		require.NoError(t, err)
		require.NoError(t, s.ApplyYAML(within(t), text, argocd))
	}
	apply(t, s, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argocd-cm", "namespace": argocd},
	}})
}

func namespaceObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"}},
	}}
}

func apply(t *testing.T, s site, object *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, s.Apply(within(t), object))
}

// buildPrograms builds the product's programs as they are published, and returns their folder.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, folder := range programFolders() {
		cmd := exec.CommandContext(within(t), "go", "build", "-trimpath", "-o", filepath.Join(dir, file), "./"+folder)
		cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

func programFolders() map[string]string {
	return map[string]string{
		"principal": "principal", "agent": "agent", "kubeproxy": "kubeproxy", "redisproxy": "redisproxy", "xds": "xds", "argocd-agentctl": "agentctl",
	}
}

// loadPrograms gives a node the images of the programs, by the names that the charts have.
func loadPrograms(t *testing.T, s site, programs string) {
	t.Helper()
	for file := range programFolders() {
		archive, err := machine.Image("ghcr.io/argocd-agent-mesh/"+file+":v0.1.0", image.Content{
			Files:  map[string]string{"/" + file: filepath.Join(programs, file)},
			Config: v1.Config{Entrypoint: []string{"/" + file}, User: "65532:65532", WorkingDir: "/"},
		})
		require.NoError(t, err)
		require.NoError(t, s.node.Load(within(t), archive))
	}
}
