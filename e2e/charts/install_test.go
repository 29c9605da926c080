package charts_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// restricted are the labels of a namespace in which no Pod may do more than Pod Security's level of that name allows.
func restricted() map[string]string {
	return map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
}

// onSpoke runs Helm against the spoke, in a namespace, and fails the test if it fails.
func onSpoke(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	output, problem := helm(t, shared.Spoke("a").Kubeconfig, append(args, "--namespace="+namespace)...)
	require.Empty(t, problem)
	return output
}

// argocdNamespace is a namespace with what Argo CD and argocd-agentctl have put there.
func argocdNamespace(t *testing.T) string {
	t.Helper()
	namespace := newNamespace(t, restricted())
	createConfigMap(t, namespace, "argocd-cm")
	createSecret(t, namespace, "argocd-agent-ca", map[string]string{"ca.crt": "a certificate"})
	createSecret(t, namespace, "argocd-agent-client-tls", map[string]string{"tls.crt": "a certificate", "tls.key": "a key"})
	return namespace
}

func param(t *testing.T, namespace, key string) string {
	t.Helper()
	params, err := shared.Spoke("a").Kubernetes.CoreV1().ConfigMaps(namespace).Get(t.Context(), "argocd-agent-params", metav1.GetOptions{})
	require.NoError(t, err)
	return params.Data[key]
}

// Each chart is installed, upgraded, rolled back and uninstalled on a real API server that enforces Pod Security. Helm waits until all Pods are
// ready.
func TestLifeOfARelease(t *testing.T) {
	t.Parallel()
	for chart, c := range map[string]struct{ deployment, level, set, notes string }{
		// Nothing here gives addresses to load balancers, for which Helm would wait.
		hub:   {"argocd-agent-principal", "principal.log.level", "--set=server.address=hub.example.com,principal.service.type=NodePort", "--server-address hub.example.com --server-port PORT"},
		spoke: {"argocd-agent-agent", "agent.log.level", "--set=server.address=hub.example.com", "dials hub.example.com:443"},
	} {
		t.Run(chart, func(t *testing.T) {
			t.Parallel()
			namespace := argocdNamespace(t)
			deployment := func() *appsv1.Deployment {
				t.Helper()
				found, err := shared.Spoke("a").Kubernetes.AppsV1().Deployments(namespace).Get(t.Context(), c.deployment, metav1.GetOptions{})
				require.NoError(t, err)
				return found
			}
			require.Contains(t, onSpoke(t, namespace, "install", "mine", folderOf(chart), c.set, "--wait", "--timeout=4m"), c.notes)
			// Helm looks at the ReplicaSet, which knows a moment before the Deployment does.
			_, err := shared.Spoke("a").Wait(t.Context(), cluster.Selection{
				Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Namespace: namespace, Name: c.deployment,
			}, func(object *unstructured.Unstructured) bool {
				ready, _, _ := unstructured.NestedInt64(object.Object, "status", "readyReplicas")
				return ready == 1
			})
			require.NoError(t, err)
			first := deployment()
			require.Equal(t, "info", param(t, namespace, c.level))

			onSpoke(t, namespace, "upgrade", "mine", folderOf(chart), c.set, "--set=log.level=debug", "--wait", "--timeout=4m")
			require.Equal(t, "debug", param(t, namespace, c.level))
			require.NotEqual(t, first.Spec.Template, deployment().Spec.Template, "what has changed settings has new Pods")

			onSpoke(t, namespace, "rollback", "mine", "1", "--wait", "--timeout=4m")
			require.Equal(t, "info", param(t, namespace, c.level))
			require.Equal(t, first.Spec.Template, deployment().Spec.Template)

			declared, workload := declareWorkload(t, namespace)
			onSpoke(t, namespace, "uninstall", "mine", "--wait", "--timeout=4m")
			_, err = shared.Spoke("a").Kubernetes.AppsV1().Deployments(namespace).Get(t.Context(), c.deployment, metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err), "%v", err)
			requireUntouched(t, declared)
			requireUntouched(t, workload)
			_, err = shared.Spoke("a").Kubernetes.CoreV1().Secrets(namespace).Get(t.Context(), "argocd-agent-ca", metav1.GetOptions{})
			require.NoError(t, err, "who installs again has the same CA")
			onSpoke(t, namespace, "install", "mine", folderOf(chart), c.set, "--wait", "--timeout=4m")
			_, err = shared.Spoke("a").Kubernetes.CoreV1().Namespaces().Get(t.Context(), namespace+"-agent-ca", metav1.GetOptions{})
			require.Equal(t, chart == spoke, apierrors.IsNotFound(err), "%v", err)
		})
	}
}

// The CA that a spoke is given is what it trusts at first. Who has replaced CAs since is not undone by an upgrade, unless by another value.
func TestReplacedCAsStay(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, restricted())
	createConfigMap(t, namespace, "argocd-cm")
	createSecret(t, namespace, "argocd-agent-client-tls", map[string]string{"tls.crt": "a certificate", "tls.key": "a key"})
	secrets := shared.Spoke("a").Kubernetes.CoreV1().Secrets(namespace)
	holds := func(want string) {
		t.Helper()
		ca, err := secrets.Get(t.Context(), "argocd-agent-ca", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, want, string(ca.Data["ca.crt"]))
	}
	run := func(command, ca string) {
		t.Helper()
		onSpoke(t, namespace, command, "mine", folderOf(spoke), "--set=server.address=hub.example.com", "--set=certificates.ca="+ca)
	}
	run("install", "first")
	holds("first")
	run("upgrade", "first")
	holds("first")

	_, err := secrets.Patch(t.Context(), "argocd-agent-ca", types.MergePatchType, []byte(`{"stringData":{"ca.crt":"first\nnewer\n"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	run("upgrade", "first")
	holds("first\nnewer\n")
	run("upgrade", "second")
	holds("second")
}

// object is one that is there, as it was.
type object struct {
	cluster.Selection

	was *unstructured.Unstructured
}

// declareWorkload makes an Application, and something that might be its own.
func declareWorkload(t *testing.T, namespace string) (application, workload object) {
	t.Helper()
	declare := func(group, resource, apiVersion, kind string, spec map[string]any) object {
		s := cluster.Selection{Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Namespace: namespace, Name: "guestbook"}
		content := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": s.Name, "namespace": namespace}}
		maps.Copy(content, spec)
		if group == "argoproj.io" {
			s.Resource.Version = "v1alpha1"
		}
		require.NoError(t, shared.Spoke("a").Apply(t.Context(), &unstructured.Unstructured{Object: content}))
		was, err := shared.Spoke("a").Get(t.Context(), s)
		require.NoError(t, err)
		return object{s, was}
	}
	application = declare("argoproj.io", "applications", "argoproj.io/v1alpha1", "Application", map[string]any{"spec": map[string]any{
		"project": "default", "destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": namespace},
		"source": map[string]any{"repoURL": "https://git.example.com/a", "path": "."},
	}})
	return application, declare("", "configmaps", "v1", "ConfigMap", map[string]any{"data": map[string]any{"a": "b"}})
}

func requireUntouched(t *testing.T, o object) {
	t.Helper()
	is, err := shared.Spoke("a").Get(t.Context(), o.Selection)
	require.NoError(t, err)
	require.Equal(t, o.was.GetUID(), is.GetUID())
	require.Equal(t, o.was.GetResourceVersion(), is.GetResourceVersion())
}

// What the API server would not take shows without anything being installed: of every shape, in a namespace that restricts Pods. Kinds that the
// cluster does not have are left out, and no others. Istio's are for the hub, which has those.
func TestEveryShapeIsTaken(t *testing.T) {
	t.Parallel()
	eachShape(t, func(t *testing.T, chart, values string) {
		t.Helper()
		namespace := newNamespace(t, restricted())
		a := shared.Spoke("a")
		for _, object := range render(t, chart, "--values="+values) {
			if group := object.GroupVersionKind().Group; group == "monitoring.coreos.com" || group == "cert-manager.io" {
				continue
			}
			if strings.HasSuffix(object.GroupVersionKind().Group, "istio.io") {
				object.SetNamespace("default")
				require.NoError(t, dryRun(t.Context(), shared.Hub.Cluster, object), "%s %s", object.GetKind(), object.GetName())
				continue
			}
			if object.GetNamespace() != "" {
				object.SetNamespace(namespace)
			}
			require.NoError(t, dryRun(t.Context(), a.Cluster, object), "%s %s", object.GetKind(), object.GetName())
			if pod := podOf(t, object); pod != nil {
				require.NoError(t, dryRun(t.Context(), a.Cluster, pod), "Pod of %s %s", object.GetKind(), object.GetName())
			}
		}
	})
}

// podOf is the Pod that a Deployment or a Job makes, or nil: Pod Security refuses none but Pods.
func podOf(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	template, found, err := unstructured.NestedMap(object.Object, "spec", "template")
	require.NoError(t, err)
	if !found {
		return nil
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetNamespace(object.GetNamespace())
	pod.SetName(object.GetName())
	return pod
}

func dryRun(ctx context.Context, c *cluster.Cluster, object *unstructured.Unstructured) error {
	selection, err := c.SelectionOf(object)
	if err != nil {
		return err
	}
	_, err = c.Of(selection).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// What a cluster lacks is said before anything is installed, with what to do.
func TestClustersThatAreNotReady(t *testing.T) {
	t.Parallel()
	const address = "--set=server.address=hub.example.com"
	without := func(secrets ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			namespace := argocdNamespace(t)
			for _, name := range secrets {
				require.NoError(t, shared.Spoke("a").Kubernetes.CoreV1().Secrets(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
			return namespace
		}
	}
	installed := func(chart string) func(t *testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			namespace := argocdNamespace(t)
			onSpoke(t, namespace, "install", "first", folderOf(chart), address)
			return namespace
		}
	}
	for name, c := range map[string]struct {
		chart     string
		namespace func(t *testing.T) string
		args      []string
		want      string
	}{
		"a hub twice":                  {hub, installed(hub), nil, "argocd-agent-principal is in namespace NAMESPACE already, of the Helm release first"},
		"a spoke twice":                {spoke, installed(spoke), nil, "argocd-agent-agent is in namespace NAMESPACE already, of the Helm release first"},
		"a spoke beside a hub":         {spoke, installed(hub), nil, "argocd-agent-params is in namespace NAMESPACE already, of the Helm release first"},
		"a hub beside a spoke":         {hub, installed(spoke), nil, "argocd-agent-params is in namespace NAMESPACE already, of the Helm release first"},
		"a hub, another namespace":     {hub, func(t *testing.T) string { t.Helper(); return newNamespace(t, nil) }, nil, "namespace NAMESPACE has no Argo CD (no ConfigMap argocd-cm)"},
		"a spoke, another namespace":   {spoke, func(t *testing.T) string { t.Helper(); return newNamespace(t, nil) }, nil, "namespace NAMESPACE has no Argo CD (no ConfigMap argocd-cm)"},
		"a hub without its Secrets":    {hub, without(), []string{"--set=certificates.mode=secrets"}, "Secret argocd-agent-principal-tls is not in namespace NAMESPACE: make it by argocd-agentctl"},
		"a hub without cert-manager":   {hub, without(), []string{"--set=certificates.mode=cert-manager,certificates.certManager.issuerRef.name=a"}, "this cluster has no certificates.cert-manager.io"},
		"a hub without Prometheus":     {hub, without(), []string{"--set=metrics.podMonitor.enabled=true"}, "this cluster has no monitoring.coreos.com/v1"},
		"a hub without Istio":          {hub, without(), []string{"--set=trustDomain=hub.example,istio.mode=sidecar"}, "istio.mode is sidecar, and this cluster has no gateways.networking.istio.io: install Istio"},
		"a spoke without Istio":        {spoke, without(), []string{"--set=istio.mode=ambient"}, "istio.mode is ambient, and this cluster has no serviceentries.networking.istio.io: install Istio"},
		"a spoke without certificate":  {spoke, without("argocd-agent-client-tls"), nil, "Secret argocd-agent-client-tls is not in namespace NAMESPACE: run `argocd-agentctl pki issue agent NAME`"},
		"a spoke without a CA":         {spoke, without("argocd-agent-ca"), nil, "Secret argocd-agent-ca is not in namespace NAMESPACE: run `argocd-agentctl pki propagate`"},
		"a spoke without a token":      {spoke, without(), []string{"--set=certificates.mode=enroll"}, "Secret argocd-agent-enrollment is not in namespace NAMESPACE: run `argocd-agentctl agent token create NAME`"},
		"a spoke without cert-manager": {spoke, without(), []string{"--set=name=a,certificates.mode=cert-manager,certificates.certManager.issuerRef.name=a"}, "this cluster has no certificates.cert-manager.io"},
		"a spoke without Prometheus":   {spoke, without(), []string{"--set=metrics.prometheusRule.enabled=true"}, "this cluster has no monitoring.coreos.com/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := c.namespace(t)
			args := append([]string{"install", "second", folderOf(c.chart), address, "--namespace=" + namespace}, c.args...)
			_, problem := helm(t, shared.Spoke("a").Kubeconfig, args...)
			require.Contains(t, problem, replace(c.want, namespace))
		})
	}
}

func TestClusterWithoutArgoCD(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "a cluster without Argo CD"})
	require.NoError(t, err)
	bare, err := cluster.Start(t.Context(), cluster.Options{Name: "bare", Host: shared.Host, Tools: shared.Tools, CA: ca})
	require.NoError(t, err)
	_, err = bare.Kubernetes.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argocd"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, chart := range charts() {
		_, problem := helm(t, bare.Kubeconfig, "install", "mine", folderOf(chart), "--namespace=argocd", "--set=server.address=hub.example.com")
		require.Contains(t, problem, "this cluster has no Applications (applications.argoproj.io): install Argo CD first")
	}
}
