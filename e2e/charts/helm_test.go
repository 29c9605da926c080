package charts_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Names of the charts.
const (
	hub   = "argocd-agent-hub"
	spoke = "argocd-agent-spoke"
)

func charts() []string { return []string{hub, spoke} }

// folderOf returns a path in a chart.
func folderOf(chart string, path ...string) string {
	return filepath.Join(append([]string{"..", "..", "charts", chart}, path...)...)
}

// shapesOf are the values files of a chart that are tested, by their names.
func shapesOf(t *testing.T, chart string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(folderOf(chart, "ci", "*-values.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := make(map[string]string)
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = file
	}
	return all
}

// helm runs a command of Helm, against the cluster of a kubeconfig or none, and returns what it prints, and what it says when it fails.
func helm(t *testing.T, kubeconfig string, args ...string) (output, problem string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, shared.Tools.Program(toolset.Helm), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		problem = err.Error() + "\n" + stderr.String()
	}
	return stdout.String(), problem
}

// render returns the objects that a chart makes, without a cluster.
func render(t *testing.T, chart string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	text, problem := template(t, chart, args...)
	require.Empty(t, problem)
	objects, err := cluster.Parse([]byte(text))
	require.NoError(t, err)
	return objects
}

func template(t *testing.T, chart string, args ...string) (output, problem string) {
	t.Helper()
	// Helm as it is built here takes itself for one of Kubernetes 1.20.
	return helm(t, "", append([]string{"template", "test", folderOf(chart), "--namespace=argocd", "--kube-version=1.36.1"}, args...)...)
}

// newNamespace makes a namespace on the spoke as it is where Argo CD runs, and what the levels of Pod Security restrict most. The chart's
// namespace for the CA goes with it.
func newNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	core := shared.Spoke("a").Kubernetes.CoreV1()
	made, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "argocd-", Labels: labels}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return made.Name
}

func createConfigMap(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := shared.Spoke("a").Kubernetes.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func createSecret(t *testing.T, namespace, name string, data map[string]string) {
	t.Helper()
	_, err := shared.Spoke("a").Kubernetes.CoreV1().Secrets(namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// replace puts a namespace into what is expected.
func replace(want, namespace string) string { return strings.ReplaceAll(want, "NAMESPACE", namespace) }
