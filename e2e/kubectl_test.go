package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// kubectl is kubectl at a spoke's API server, by way of the hub's kubeproxy.
type kubectl struct {
	kubeconfig string
	namespace  string
}

// newKubectl returns one for the caller of an agent, or for lab.AllAgents. path is what follows the kubeproxy's address.
func newKubectl(t *testing.T, name, path, namespace string) kubectl {
	t.Helper()
	who := pki.ClientOptions{Caller: identity.Agent(name)}
	if name == lab.AllAgents {
		who = pki.ClientOptions{SPIFFEID: name}
	}
	return kubectlAs(t, who, path, namespace)
}

// kubectlAs returns one for whoever has such a certificate.
func kubectlAs(t *testing.T, who pki.ClientOptions, path, namespace string) kubectl {
	t.Helper()
	return kubectlAt(t, shared.Kubeproxy, who, path, namespace)
}

// kubectlAt is kubectlAs for a kubeproxy of a test's own.
func kubectlAt(t *testing.T, kubeproxy *lab.Proxy, who pki.ClientOptions, path, namespace string) kubectl {
	t.Helper()
	pair, err := shared.CA.IssueClient(who)
	require.NoError(t, err)
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: spoke
clusters: [{name: spoke, cluster: {server: "https://%s%s", certificate-authority-data: %s}}]
users: [{name: somebody, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: spoke, context: {cluster: spoke, user: somebody, namespace: %s}}]
`, kubeproxy.Address, path, encoded(shared.CA.PEM().Certificate), encoded(pair.Certificate), encoded(pair.Key), namespace)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return kubectl{file, namespace}
}

func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// command returns a command to start.
func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, shared.Tools.Program(toolset.Kubectl), append([]string{"--kubeconfig=" + k.kubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(k.kubeconfig), "KUBECACHEDIR="+filepath.Dir(k.kubeconfig))
	return cmd
}

// try runs a command to its end.
func (k kubectl) try(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := k.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a command that must work.
func (k kubectl) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := k.try(t, stdin, args...)
	require.NoError(t, err, "kubectl %s\n%s\n%s", strings.Join(args, " "), out, shared.Report())
	return out
}

// begin starts a command that goes on until the test is over, and returns what it says.
func (k kubectl) begin(t *testing.T, args ...string) io.Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := k.command(ctx, args...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("kubectl %s: %s", strings.Join(args, " "), complaints.String())
		}
	})
	return out
}

// readUntil reads until the expression matches, and returns the match.
func readUntil(t *testing.T, from io.Reader, expression string) []string {
	t.Helper()
	want := regexp.MustCompile(expression)
	var said bytes.Buffer
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		said.Write(buffer[:n])
		if found := want.FindStringSubmatch(said.String()); found != nil {
			return found
		}
		require.NoError(t, err, "want %s, got:\n%s", expression, said.String())
	}
}

// permit lets the hub do anything in a namespace of a spoke, and the agent whose namespace is the other do it.
func permit(t *testing.T, spoke *lab.Cluster, agents, namespace string) {
	t.Helper()
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	create(t, spoke, cluster.Selection{Resource: configMaps, Namespace: agents, Name: "argocd-agent-policy"},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "argocd-agent-policy", "namespace": agents},
			"data": map[string]any{"policy.yaml": `applications: true
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"], namespaces: ["` + namespace + `"]}
`},
		}})
	grant(t, spoke, namespace)
}

// grant lets the agents of a spoke do anything in a namespace, as far as their policies go.
func grant(t *testing.T, spoke *lab.Cluster, namespace string) {
	t.Helper()
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	create(t, spoke, cluster.Selection{Resource: roles, Namespace: namespace, Name: "everything"},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
			"metadata": map[string]any{"name": "everything", "namespace": namespace},
			"rules": []any{map[string]any{
				"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"},
			}},
		}})
	bindings := roles
	bindings.Resource = "rolebindings"
	create(t, spoke, cluster.Selection{Resource: bindings, Namespace: namespace, Name: "everything"},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
			"metadata": map[string]any{"name": "everything", "namespace": namespace},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "everything"},
			"subjects": []any{map[string]any{
				"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": lab.AgentUser,
			}},
		}})
}

// Whatever kubectl does, it does through kubeproxy as it would at the API server, where the policy lets it.
func TestKubectlWorksThroughKubeproxy(t *testing.T) {
	t.Parallel()
	g := newGuestbook(t, "b", "kubectl")
	permit(t, g.spoke.cluster, lab.Namespace, g.declared.Into)
	k := newKubectl(t, "b", "", g.declared.Into)

	events := k.begin(t, "get", "configmaps", "--watch", "--output-watch-events", "-o=name")
	readUntil(t, events, "guestbook")
	require.Contains(t, k.run(t, "", "get", "deployments"), "2/2", "Tables come through")
	require.Contains(t, k.run(t, "", "get", "pods", "-o=yaml"), g.pod)
	k.run(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}}`,
		"apply", "--server-side", "-f=-")
	readUntil(t, events, "applied")
	require.Contains(t, k.run(t, "", "create", "token", "default"), ".", "a subresource that is posted to")
	require.Contains(t, k.run(t, "", "explain", "deployment.spec.replicas"), "integer", "OpenAPI comes through")
	k.run(t, "", "delete", "configmap", "applied")

	readUntil(t, k.begin(t, "logs", "-f", g.pod), strings.TrimSpace(cluster.PodLog))
	require.Equal(t, "hello\n", k.run(t, "", "exec", g.pod, "--", "echo", "hello"))
	out, err := k.try(t, "", "exec", g.pod, "--", "sh", "-c", "exit 3")
	require.Error(t, err)
	require.Contains(t, out, "exit status 3", "what became of the command comes back")
	k.forwards(t, g.pod)
	k.copies(t, g.pod)
	// Last of all: Argo CD heals it, and which Pod goes then is not for us to say.
	k.run(t, "", "scale", "deployment", "guestbook", "--replicas=3")
}

// A renewal of the agent's certificate, which comes every hour in some meshes, ends nobody's terminal, log or watch.
func TestOpenWatchSurvivesCertificateRenewal(t *testing.T) {
	t.Parallel()
	s := newSite(t, "renewing", lab.AgentOptions{}).connected(t)
	permit(t, s.spoke, s.name, s.name)
	configMap := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": s.name},
		}}
	}
	require.NoError(t, s.spoke.Apply(t.Context(), configMap("before")))
	k := newKubectl(t, s.name, "", s.name)
	events := k.begin(t, "get", "configmaps", "--watch", "--output-watch-events", "-o=name")
	readUntil(t, events, "configmap/before")

	mark := s.agent.Mark()
	files{s.agent.Name()}.holds(t, nil, clientPair(t, shared.CA, s.name, pki.Validity{}))
	saysNow(t, s.agent, mark, "Certificate renewed; reconnecting", lab.ConnectedAgentLine)
	require.NoError(t, s.spoke.Apply(t.Context(), configMap("after")))
	readUntil(t, events, "configmap/after")
	require.Contains(t, k.run(t, "", "get", "configmaps"), "after", "what is new goes over the new connection")
	stopped(t, s.agent.Stop)
}

// forwards forwards a port, behind which there is an echo.
func (k kubectl) forwards(t *testing.T, pod string) {
	t.Helper()
	port := readUntil(t, k.begin(t, "port-forward", pod, ":8080"), `127\.0\.0\.1:(\d+) -> 8080`)[1]
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer conn.Close()
	said := bytes.Repeat([]byte("echo "), 10_000)
	go func() { _, _ = conn.Write(said) }()
	answer := make([]byte, len(said))
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	require.Equal(t, said, answer)
}

// copies copies a file into a container, whose files are those of this machine, and out of it.
func (k kubectl) copies(t *testing.T, pod string) {
	t.Helper()
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "from"), content, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "inside"), 0o700))
	inside := filepath.Join(dir, "inside", "to")
	k.run(t, "", "cp", filepath.Join(dir, "from"), k.namespace+"/"+pod+":"+inside)
	found, err := os.ReadFile(inside)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, found), "%d bytes went in, %d are there", len(content), len(found))
	back := filepath.Join(dir, "back")
	k.run(t, "", "cp", k.namespace+"/"+pod+":"+inside, back)
	found, err = os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, found), "%d bytes went out, %d came", len(content), len(found))
}

// By default the hub reaches what belongs to an application, and nothing else.
func TestLiveAccessIsLimitedToPolicy(t *testing.T) {
	t.Parallel()
	g := newGuestbook(t, "a", "nothing-else")
	k := newKubectl(t, "a", "", g.declared.Into)
	require.Contains(t, k.run(t, "", "get", "configmap", "guestbook"), "guestbook")
	require.Contains(t, k.run(t, "", "logs", g.pod), strings.TrimSpace(cluster.PodLog))
	for what, command := range map[string][]string{
		"another object":         {"get", "configmap", "argocd-cm", "--namespace=" + lab.Namespace},
		"the agent's own key":    {"get", "secret", "argocd-agent-client-tls", "--namespace=" + lab.Namespace},
		"all of a kind":          {"get", "secrets"},
		"all of all namespaces":  {"get", "pods", "--all-namespaces"},
		"something new":          {"create", "configmap", "new", "--from-literal=a=b"},
		"a token":                {"create", "token", "default"},
		"a port":                 {"get", "--raw=/api/v1/namespaces/" + g.declared.Into + "/pods/" + g.pod + "/portforward"},
		"a node":                 {"get", "--raw=/api/v1/nodes/" + cluster.NodeName + "/proxy/pods"},
		"the way round":          {"get", "--raw=/api/v1/namespaces/" + g.declared.Into + "/configmaps/../secrets"},
		"as somebody else":       {"get", "configmap", "guestbook", "--as=admin"},
		"the application itself": {"get", "applications.argoproj.io", g.declared.Name, "--namespace=" + lab.Namespace},
	} {
		out, err := k.try(t, "", command...)
		require.Error(t, err, "%s: %s", what, out)
		require.Regexp(t, "Forbidden|forbidden|BadRequest|canonical|denied|policy", out, what)
	}
}

// Who is asked for is found by who asks.
func TestKubeproxySelectsAgent(t *testing.T) {
	t.Parallel()
	a, b := newGuestbook(t, "a", "found"), newGuestbook(t, "b", "found")
	for _, g := range []*guestbook{a, b} {
		agent := g.declared.Namespace
		k := newKubectl(t, lab.AllAgents, "/agents/"+agent, g.declared.Into)
		require.Contains(t, k.run(t, "", "get", "pod", g.pod), g.pod)
	}
	for _, c := range []struct{ name, path, want string }{
		{lab.AllAgents, "/agents/never-created", "no such agent"},
		{lab.AllAgents, "", "/agents/"},
		{"a", "/agents/b", "orbidden"},
		{"stranger", "", "no such agent"},
	} {
		out, err := newKubectl(t, c.name, c.path, a.declared.Into).try(t, "", "get", "--raw=/api/v1/namespaces/"+a.declared.Into+"/pods/"+a.pod)
		require.Error(t, err)
		require.Contains(t, out, c.want)
	}
	out, err := kubectlAs(t, pki.ClientOptions{CommonName: "a"}, "", a.declared.Into).try(t, "", "get", "--raw=/version")
	require.Error(t, err, "an agent's own certificate is not that of a caller")
	require.Contains(t, out, "not that of a caller")
}
