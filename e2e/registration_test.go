package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	hubargocd "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

const registers = "--enable-self-cluster-registration"

// newRegistering makes a principal at which agents register themselves, with the rights for that and no others. It is not started.
func newRegistering(t *testing.T, args ...string) *lab.Principal {
	t.Helper()
	user := unique("registering")
	rights, err := os.ReadFile(filepath.Join("lab", "manifests", "principal-registration-rbac.yaml"))
	require.NoError(t, err)
	rights = bytes.ReplaceAll(rights, []byte("argocd-agent-principal-registration"), []byte(user+"-registration"))
	rights = bytes.ReplaceAll(rights, []byte("kind: User, name: argocd-agent-principal}"), []byte("kind: User, name: "+user+"}"))
	rights = fmt.Appendf(rights, `---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %[1]s},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: argocd-agent-principal},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: argocd-agent-principal},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]}
`, user)
	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), rights, lab.Namespace))
	principal, err := shared.NewPrincipal(t.Context(), lab.PrincipalOptions{
		Args: append([]string{"--kubeconfig=" + impersonating(t, shared.Hub, user), byDestination, registers}, args...),
	})
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, principal.Stop) })
	return principal
}

// newUnknownSite makes a site whose agent the hub has never heard of, and starts the agent.
func newUnknownSite(t *testing.T, name string, options lab.AgentOptions) *site {
	t.Helper()
	options.Spoke, options.Name = "b", name
	options.Args = append([]string{"--namespace=" + name, byDestination}, options.Args...)
	require.NoError(t, shared.Spoke("b").Apply(t.Context(), namespace(name)))
	agent, err := shared.NewAgent(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, agent.Stop) })
	require.NoError(t, agent.Start(t.Context()))
	return &site{name: name, spoke: shared.Spoke("b"), agent: agent}
}

// sharedCertificate is the data of a Secret with a certificate that all self-registered clusters share.
func sharedCertificate(t *testing.T) map[string][]byte {
	t.Helper()
	pair, err := shared.CA.IssueClient(pki.ClientOptions{SPIFFEID: lab.AllAgents})
	require.NoError(t, err)
	return map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key, "ca.crt": shared.CA.PEM().Certificate}
}

// Nobody creates anything on the hub for an agent: it connects, an ApplicationSet finds its cluster by what it says of that, and Argo CD
// reaches it.
func TestAgentRegistersItself(t *testing.T) {
	t.Parallel()
	controller, err := shared.Hub.ArgoCD.StartApplicationSets(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, controller.Stop) })
	ports := new(port.Allocator)
	t.Cleanup(func() { require.NoError(t, ports.Close()) })
	number, err := ports.Free()
	require.NoError(t, err)
	source := core(shared.Hub, "secrets", lab.Namespace, unique("shared-certificate"))
	first := sharedCertificate(t)
	source.declare(t, "Secret", secretData(first))
	principal := newRegistering(t, "--self-registration-client-cert-secret="+source.selection.Name, "--resource-proxy-address="+port.Address(number),
		"--self-registration-allowed-labels=fleet")
	start(t, principal.Start)
	newKubeproxy(t, lab.ProxyOptions{Principal: principal, Args: []string{"--listen-port=" + strconv.Itoa(number)}})

	name, set := unique("self-registered"), unique("by-label")
	_, err = shared.Agentctl(t.Context(), "agent", "token", "create", name, "--label", "region=eu", "--annotation", "owner=Jo, the admin")
	require.NoError(t, err)
	s := newUnknownSite(t, name, lab.AgentOptions{Principal: principal, Args: []string{"--cluster-labels=fleet=" + set + ",tier=gold"}}).connected(t)
	says(t, principal, "Registered an agent's cluster", "Left out labels or annotations", "label tier: allow it by --self-registration-allowed-labels")
	made := secretOf(t, shared.Hub, lab.Namespace, "cluster-"+name)
	require.Equal(t, "true", made.Labels["argocd-agent.argoproj-labs.io/self-registered-cluster"])
	require.Equal(t, "eu", made.Labels["region"])
	require.Equal(t, "Jo, the admin", made.Annotations["owner"])
	require.NotContains(t, made.Labels, "tier")

	t.Run("an ApplicationSet finds it", func(t *testing.T) { s.isFound(t, set) })
	t.Run("Argo CD reaches it", func(t *testing.T) { require.Contains(t, versionBy(t, made), "v1.") })
	t.Run("its certificate is rotated", func(t *testing.T) {
		next := sharedCertificate(t)
		source.edit(t, func(object *unstructured.Unstructured) { maps.Copy(object.Object, secretData(next)) })
		core(shared.Hub, "secrets", lab.Namespace, made.Name).becomes(t, func(*unstructured.Unstructured) bool {
			now, err := hubargocd.ReadCluster(secretOf(t, shared.Hub, lab.Namespace, made.Name))
			require.NoError(t, err)
			return bytes.Equal(now.Access.TLS.Key, next["tls.key"])
		})
		require.Contains(t, versionBy(t, secretOf(t, shared.Hub, lab.Namespace, made.Name)), "v1.")
	})
	t.Run("argocd-agentctl shows it", func(t *testing.T) {
		require.NoError(t, shared.Hub.Apply(t.Context(), namespace(name))) // which is asked for
		shown, err := shared.Agentctl(t.Context(), "agent", "list", "-l", "fleet="+set, "-o", "wide")
		require.NoError(t, err)
		require.Regexp(t, `(?m)^NAME .*CREATED BY\n`+name+` .* 0 .* principal *$`, shown)
		inspected, err := shared.Agentctl(t.Context(), "agent", "inspect", name)
		require.NoError(t, err, inspected)
		require.Contains(t, inspected, "the principal, which keeps it up to date")
		_, err = shared.Agentctl(t.Context(), "agent", "reconfigure", name, "--resource-proxy-server=elsewhere:1")
		require.ErrorContains(t, err, "created by a principal, which manages it")
	})
	t.Run("deleted, it comes back", func(t *testing.T) {
		_, err := shared.Agentctl(t.Context(), "agent", "delete", name, "--force")
		require.NoError(t, err)
		require.NoError(t, s.agent.Restart(t.Context()))
		s.connected(t)
		require.Equal(t, "eu", secretOf(t, shared.Hub, lab.Namespace, made.Name).Labels["region"])
	})
}

// secretData is the content of a Secret.
func secretData(data map[string][]byte) map[string]any {
	encoded := make(map[string]any)
	for key, value := range data {
		encoded[key] = inBase64(string(value))
	}
	return map[string]any{"data": encoded}
}

// isFound has an ApplicationSet make an Application for the clusters with a label, and waits until it has arrived.
func (s *site) isFound(t *testing.T, set string) {
	t.Helper()
	kind := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"}
	objects, err := cluster.Parse(fmt.Appendf(nil, applicationSet, set, shared.Git.URL))
	require.NoError(t, err)
	create(t, shared.Hub, cluster.Selection{Resource: kind, Namespace: lab.Namespace, Name: set}, objects[0])
	app := set + "-" + s.name
	generated := &twin{hub: side{shared.Hub, argocd.Named(lab.Namespace, app)}, spoke: side{s.spoke, argocd.Named(s.name, app)}}
	generated.hub.becomes(t, func(object *unstructured.Unstructured) bool { return len(object.GetOwnerReferences()) == 1 })
	generated.arrives(t, has("in-cluster", "spec", "destination", "name"))
}

// versionBy asks the API server of an agent for its version, as Argo CD does by a cluster Secret.
func versionBy(t *testing.T, secret *corev1.Secret) string {
	t.Helper()
	known, err := hubargocd.ReadCluster(secret)
	require.NoError(t, err)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: known.Server, TLSClientConfig: rest.TLSClientConfig{
		CertData: known.Access.TLS.Certificate, KeyData: known.Access.TLS.Key, CAData: known.Access.TLS.CAData,
	}})
	require.NoError(t, err)
	version, err := client.ServerVersion()
	require.NoError(t, err)
	return version.GitVersion
}

// A blocked agent gets nothing made on the hub, until it is unblocked.
func TestBlockedAgentDoesNotRegister(t *testing.T) {
	t.Parallel()
	name := unique("blocked-before")
	agentctl(t, "agent", "block", name)
	principal := newRegistering(t)
	start(t, principal.Start)
	s := newUnknownSite(t, name, lab.AgentOptions{Principal: principal})
	says(t, s.agent, "agent "+name+" is blocked")
	secrets := shared.Hub.Kubernetes.CoreV1().Secrets(lab.Namespace)
	_, err := secrets.Get(t.Context(), "cluster-"+name, metav1.GetOptions{})
	require.Error(t, err)

	agentctl(t, "agent", "unblock", name)
	s.connected(t)
	made := secretOf(t, shared.Hub, lab.Namespace, "cluster-"+name)
	require.JSONEq(t, `{"tlsClientConfig":{"insecure":false}}`, string(made.Data["config"]), "it holds no key")
}

// A name that means something else on the hub is refused, and nothing is made or changed.
func TestNamesThatDoNotRegister(t *testing.T) {
	t.Parallel()
	principal := newRegistering(t)
	start(t, principal.Start)
	pushed, taken := unique("pushed"), unique("taken")
	core(shared.Hub, "secrets", lab.Namespace, unique("other")).declare(t, "Secret",
		secretData(map[string][]byte{"name": []byte(pushed), "server": []byte("https://" + pushed)}), label(secretType, "cluster"))
	inTheWay := core(shared.Hub, "secrets", lab.Namespace, "cluster-"+taken)
	inTheWay.declare(t, "Secret", secretData(map[string][]byte{"key": []byte("value")}))
	for name, want := range map[string]string{
		pushed:       "is of a cluster named",
		taken:        "has the name that the agent's cluster Secret would have",
		"in-cluster": "in-cluster",
	} {
		says(t, newUnknownSite(t, name, lab.AgentOptions{Principal: principal}).agent, want)
	}
	left := secretOf(t, shared.Hub, lab.Namespace, inTheWay.selection.Name)
	require.Equal(t, map[string][]byte{"key": []byte("value")}, left.Data)
	require.NotContains(t, left.Labels, "argocd-agent.argoproj-labs.io/agent-name")
	for _, name := range []string{pushed, "in-cluster"} {
		_, err := shared.Hub.Kubernetes.CoreV1().Secrets(lab.Namespace).Get(t.Context(), "cluster-"+name, metav1.GetOptions{})
		require.Error(t, err, name)
	}
}
