package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// securedRedis starts a Redis that speaks TLS as argocd-redis, with a password.
func securedRedis(t *testing.T, ca *pki.CA) *redistest.Redis {
	t.Helper()
	pair, err := ca.IssueServer(pki.ServerOptions{Names: []string{"argocd-redis"}, Addresses: []net.IP{net.IPv4(192, 0, 2, 1)}})
	require.NoError(t, err)
	folder := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	return redistest.StartTLS(t, file("tls.crt", pair.Certificate), file("tls.key", pair.Key), file("ca.crt", ca.PEM().Certificate), "--requirepass", argocd.RedisPassword)
}

// sets sets a ConfigMap in a namespace of a cluster, whether it is there or not.
func sets(t *testing.T, c *lab.Cluster, namespace, name string, data map[string]string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": namespace}}}
	values := make(map[string]any, len(data))
	for key, value := range data {
		values[key] = value
	}
	object.Object["data"] = values
	require.NoError(t, c.Apply(t.Context(), object))
}

// The Redis of each cluster is used as its clients use it, and what is wrong is named with what to do about it.
func TestDoctorLooksAtTheRedisOfBothClusters(t *testing.T) {
	t.Parallel()
	a := ready(t)
	ca := newCA(t, "redis", pki.Validity{})
	secured, plain := securedRedis(t, ca), redistest.Start(t, "--requirepass", argocd.RedisPassword)
	for name, data := range map[string]map[string][]byte{
		"argocd-redis":     {"auth": []byte(argocd.RedisPassword)},
		"argocd-redis-tls": {"ca.crt": ca.PEM().Certificate},
	} {
		a.creates(t, name, data)
		_, err := shared.Spoke("b").Kubernetes.CoreV1().Secrets(a.spoke).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	base := "doctor berlin --agent-context spoke-b"
	byTLS := base + " --principal-redis " + secured.Address + " --agent-redis " + secured.Address
	a.fails(t, byTLS, "the first hop that fails: Redis of the hub", "it speaks TLS, and plain text is configured", "principal.redis.tls.enabled", "--principal-redis-tls here")
	sets(t, shared.Hub, a.hub, "argocd-agent-params", map[string]string{"principal.redis.tls.enabled": "true"})
	a.fails(t, byTLS, "the first hop that fails: Redis of the agent's cluster", "it speaks TLS, and plain text is configured", "agent.redis.tls.enabled")
	sets(t, shared.Spoke("b"), a.spoke, "argocd-agent-params", map[string]string{"agent.redis.tls.enabled": "true"})
	text := a.does(t, byTLS).output
	require.Contains(t, text, "ok       Redis of the hub: argocd-redis:6379 by TLS\n")
	require.Contains(t, text, "ok       Redis of the agent's cluster: argocd-redis:6379 by TLS\n")
	require.Regexp(t, "(?m)^skipped +redisproxy: .*give --redis-proxy", text, "there is no Service of it")

	byPlain := base + " --principal-redis " + plain.Address + " --agent-redis " + plain.Address
	a.fails(t, byPlain, "Redis of the hub", "it answers in plain text, and TLS is configured", "--principal-redis-tls=false here")
	a.fails(t, byPlain+" --principal-redis-tls=false", "Redis of the agent's cluster", "it answers in plain text, and TLS is configured", "--agent-redis-tls=false here")
	require.Contains(t, a.does(t, byPlain+" --principal-redis-tls=false --agent-redis-tls=false").output, "ok       Redis of the agent's cluster: argocd-redis:6379 in plain text\n")
	a.fails(t, strings.ReplaceAll(byTLS, secured.Address, "127.0.0.1:1"), "Redis of the hub", "no connection", "look at its Pods")

	a.changes(t, "argocd-redis-tls", func(s *corev1.Secret) { s.Data["ca.crt"] = newCA(t, "another", pki.Validity{}).PEM().Certificate })
	a.fails(t, byTLS, "Redis of the hub", "its certificate is not trusted", "ca.crt of Secret "+a.hub+"/argocd-redis-tls on the hub")
	a.changes(t, "argocd-redis-tls", func(s *corev1.Secret) { s.Data["ca.crt"] = ca.PEM().Certificate })
	sets(t, shared.Hub, a.hub, "argocd-agent-params", map[string]string{"principal.redis.tls.enabled": "true", "principal.redis.server.address": "cache:6379"})
	a.fails(t, byTLS, "Redis of the hub", "its certificate is for other names", "issue it for cache")
	sets(t, shared.Hub, a.hub, "argocd-agent-params", map[string]string{"principal.redis.tls.enabled": "true"})
	a.changes(t, "argocd-redis", func(s *corev1.Secret) { s.Data["auth"] = []byte("wrong") })
	a.fails(t, byTLS, "Redis of the hub", "it refuses the password", "the key auth of Secret "+a.hub+"/argocd-redis on the hub")
	a.changes(t, "argocd-redis", func(s *corev1.Secret) { delete(s.Data, "auth") })
	a.fails(t, byTLS, "Redis of the hub", "it asks for a password, and there is none")
}

// redisPod is the Pod of Redis and its Service. The Pod leads to a Redis of the test, which runs in none.
const redisPod = `
apiVersion: v1
kind: Service
metadata: {name: argocd-redis}
spec: {selector: {app: redis}, ports: [{name: redis, port: 6379, targetPort: 8000}]}
---
apiVersion: v1
kind: Pod
metadata: {name: redis-0, labels: {app: redis}}
spec: {automountServiceAccountToken: false, containers: [{name: redis, image: redis}]}
`

// Whoever has a kubeconfig and nothing else gets to Redis by a forwarded port.
func TestDoctorReachesRedisThroughAPortForward(t *testing.T) {
	t.Parallel()
	a, spoke := newAdmin(t), shared.Spoke("a")
	require.NoError(t, spoke.Apply(t.Context(), namespace(a.spoke)))
	ca := newCA(t, "redis", pki.Validity{})
	redis := securedRedis(t, ca)
	for name, data := range map[string]map[string][]byte{
		"argocd-redis":     {"auth": []byte(argocd.RedisPassword)},
		"argocd-redis-tls": {"ca.crt": ca.PEM().Certificate},
	} {
		_, err := spoke.Kubernetes.CoreV1().Secrets(a.spoke).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	sets(t, spoke, a.spoke, "argocd-agent-params", map[string]string{"agent.redis.tls.enabled": "true"})
	_, port, err := net.SplitHostPort(redis.Address)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(spoke.PodPortFile, []byte(port), 0o600))
	command := "doctor berlin --side spoke --agent-context spoke-a --agent-user " + lab.AgentUser
	require.Contains(t, a.show(t, command), "skipped  Redis of the agent's cluster: there is no Service "+a.spoke+"/argocd-redis")
	require.NoError(t, spoke.ApplyYAML(t.Context(), []byte(redisPod), a.spoke))
	podRuns(t, spoke, a.spoke, "redis-0")
	require.Contains(t, a.show(t, command), "ok       Redis of the agent's cluster: argocd-redis:6379 by TLS\n")
	sets(t, spoke, a.spoke, "argocd-agent-params", map[string]string{})
	require.Contains(t, a.show(t, command), "it speaks TLS, and plain text is configured")
	redis.Stop()
	require.Contains(t, a.show(t, command), "failed   Redis of the agent's cluster\n")
}

// show runs a command that shows something, whatever its exit code is.
func (a admin) show(t *testing.T, command string) string {
	t.Helper()
	got, err := a.try(t, command)
	t.Logf("%s: %v\n%s%s", command, err, got.output, got.warnings)
	return got.output
}

// podRuns waits until a Pod runs.
func podRuns(t *testing.T, c *lab.Cluster, namespace, name string) {
	t.Helper()
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	_, err := c.Wait(t.Context(), cluster.Selection{Resource: pods, Namespace: namespace, Name: name}, func(pod *unstructured.Unstructured) bool {
		if pod == nil {
			return false
		}
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		return phase == "Running"
	})
	require.NoError(t, err)
}

// An agent that does not reach the Redis of its cluster, and one that is away, are told apart by what redisproxy is told.
func TestDoctorTellsWhichHopToTheSpokesRedisFails(t *testing.T) {
	t.Parallel()
	name := unique("dry")
	s := startSite(t, name, lab.AgentOptions{Args: []string{"--redis-addr=127.0.0.1:1"}}).connected(t)
	a := admin{hub: lab.Namespace, environment: []string{"KUBECONFIG=" + shared.Kubeconfigs()}}
	passwordOfRedis(t, shared.Hub, lab.Namespace)
	command := "doctor " + name + " --redis-proxy " + shared.Redisproxy.Address + " --principal-user " + lab.PrincipalUser
	a.fails(t, command, "the first hop that fails: Redis through the tunnel", "the agent does not reach the Redis of its cluster")
	require.Contains(t, a.show(t, command), "ok       redisproxy's connection to the principal: agent \""+name+"\" is connected")
	stopped(t, s.agent.Stop)
	require.Regexp(t, `(?m)^failed +Redis through the tunnel\n +agent "`+name+`" is not connected since .*the agent's log says why`, a.show(t, command))
	for change, says := range map[string]string{
		" --redis-key-prefix other":                        "failed   redisproxy's connection to the principal\n         redisproxy does not know the agent",
		" --redis-proxy-tls":                               "failed   redisproxy\n         argocd-agent-redis-proxy:6379: it answers in plain text, and TLS is configured: have it speak TLS, or turn TLS off: argocd-server's --redis-use-tls",
		" --redis-proxy " + shared.Hub.ArgoCD.RedisAddress: "failed   redisproxy's connection to the principal\n         redisproxy does not know the agent",
		" --redis-proxy " + shared.Kubeproxy.Address:       "failed   redisproxy\n         argocd-agent-redis-proxy:6379: it speaks TLS, and plain text is configured",
	} {
		require.Contains(t, a.show(t, command+change), says)
	}
}

// passwordOfRedis has a namespace have the password of the lab's Redis, as Argo CD's own installation has it.
func passwordOfRedis(t *testing.T, c *lab.Cluster, namespace string) {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "argocd-redis", "namespace": namespace},
		"stringData": map[string]any{"auth": argocd.RedisPassword},
	}}))
}

// With mapping by destination the hub asks an agent for its own Applications alone, so one of them shows whether its Redis is read.
func TestDoctorReadsRedisForAnApplicationOfTheDestination(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	s := f.newSite(t, "mapped", lab.AgentOptions{Args: []string{"--redis-addr=127.0.0.1:1"}})
	passwordOfRedis(t, shared.Hub, lab.Namespace)
	proxied := func() string {
		return newRedisproxy(t, lab.ProxyOptions{Principal: f.principal}).Address
	}
	a := admin{hub: lab.Namespace, environment: []string{"KUBECONFIG=" + shared.Kubeconfigs()}}
	command := "doctor " + s.name + " --destination-based-mapping --redis-proxy "
	require.Contains(t, a.show(t, command+proxied()), "skipped  Redis through the tunnel: no Application in namespace "+lab.Namespace+" on the hub (context hub) has the destination "+s.name)
	app := s.withArgoCD("shop").create(t)
	app.arrives(t)
	f.owned(t, app.declared.Name, s.name) // a redisproxy that starts now learns it first
	require.Contains(t, a.show(t, command+proxied()), "the agent does not reach the Redis of its cluster")
}
