package node_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Trust domains of the page, and the SPIFFE ID of its agent.
const (
	hubDomain, spokeDomain = "hub.example", "spoke.example"
	agentID                = "spiffe://" + spokeDomain + "/ns/argocd/sa/argocd-agent-agent"
)

// meshes are a hub and a spoke in an Istio mesh each.
type meshes struct {
	guide

	lab        *installation.Lab
	hub, spoke *installation.Site
}

// A reader of docs/istio.md has a hub and a spoke whose programs have no certificates of their own: sidecars prove who everybody is, and let in
// nobody else. Then people work with it.
func TestInstalledIntoIstioMeshes(t *testing.T) {
	if testing.Short() {
		t.Skip("istiod, two meshes and all sidecars: make e2e runs it")
	}
	t.Parallel()
	m := newMeshes(t)
	m.run(t, "label namespace argocd istio-injection=enabled")
	m.run(t, "helm install argocd-agent "+m.lab.Chart("hub"))
	m.run(t, "create configmap argocd-agent-identities")
	m.run(t, "patch configmap argocd-cmd-params-cm")
	m.servesTheUI(t)
	m.run(t, "agent create berlin")
	requireNoFindings(t, m.run(t, "helm test"))
	require.Empty(t, m.Unread(), "these commands of the page nobody has tried")

	apply(t, m.hub, argocd.New(argocd.Application{
		Namespace: "berlin", Name: "guestbook", RepoURL: m.Git.URL, Path: "guestbook", Into: "guestbook", Destination: "berlin",
	}))
	app := installed{m.guide, m.hub, m.spoke, "berlin", "guestbook", argocd.Named("berlin", "guestbook"), argocd.Named("argocd", "guestbook")}
	u := logIn(t, m.hub.Node.Address, m.hub, m.spoke)
	app.requireHealthy(t)
	app.worksInTheUI(t, u)
	t.Run("analysis", m.analysesEveryShape)
	t.Run("agents are known by their SPIFFE IDs", m.knowsAgents)
	t.Run("strangers", m.deniesStrangers)
	t.Run("upgrade", func(t *testing.T) { upgrade(t, m.guide, u, app) })
	t.Run("access logs", m.logsNoSecrets)
}

// requireNoFindings fails for what istioctl analyze says of our objects. Of Argo CD's own Services it says that their ports have no names of its kind.
func requireNoFindings(t *testing.T, output string) {
	t.Helper()
	for line := range strings.Lines(output) {
		if strings.Contains(line, "[IST") {
			require.NotContains(t, line, "argocd-agent")
		}
	}
}

// newMeshes starts the clusters, with Istio.
func newMeshes(t *testing.T) *meshes {
	t.Helper()
	l, err := installation.StartWith(within(t), []string{toolset.Istio}, "hub", "spoke")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	require.NoError(t, l.InstallIstio(within(t), hubDomain, spokeDomain))
	reader, err := l.Reader(within(t))
	require.NoError(t, err)
	read, err := reader.Guide("istio.md")
	require.NoError(t, err)
	return &meshes{guide{read}, l, l.Sites[0], l.Sites[1]}
}

func (m *meshes) run(t *testing.T, with string, replacements ...string) string {
	t.Helper()
	out, err := m.Run(within(t), with, replacements...)
	if err != nil {
		require.NoError(t, err, explain(t, m.hub, m.spoke))
	}
	t.Log(out)
	return out
}

// servesTheUI sets what the page leaves to people: they come to argocd-server by the gateway, and terminals are on.
func (m *meshes) servesTheUI(t *testing.T) {
	t.Helper()
	require.NoError(t, m.ConfigureArgoCD(within(t)))
	require.NoError(t, m.hub.ApplyYAML(within(t), []byte(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: argocd-server}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: argocd-server}
spec:
  gateways: [argocd-server]
  hosts: ["*"]
  http: [{route: [{destination: {host: argocd-server, port: {number: 80}}}]}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default}
spec: {mtls: {mode: STRICT}}
`), installation.Namespace))
}

// analysesEveryShape: Istio has nothing to say against what the charts make of it, whatever the shape.
func (m *meshes) analysesEveryShape(t *testing.T) {
	for chart, s := range map[string]*installation.Site{"hub": m.hub, "spoke": m.spoke} {
		shapes, err := filepath.Glob(filepath.Join(m.lab.Chart(chart), "ci", "istio-*-values.yaml"))
		require.NoError(t, err)
		require.NotEmpty(t, shapes)
		for _, values := range shapes {
			made, err := s.Helm(within(t), "template", "argocd-agent", m.lab.Chart(chart), "--namespace="+installation.Namespace, "--no-hooks", "--values="+values)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "made.yaml")
			require.NoError(t, os.WriteFile(file, []byte(made), 0o600))
			said, err := s.Istioctl(within(t), "analyze", "--namespace="+installation.Namespace, "--failure-threshold=Info", file)
			require.NoError(t, err, values)
			requireNoFindings(t, said)
		}
	}
}

// knowsAgents: the principal knows the agent by the SPIFFE ID that its sidecar proved to the gateway.
func (m *meshes) knowsAgents(t *testing.T) {
	logs, err := m.hub.Kubectl(within(t), "logs", "-n", installation.Namespace, "-l", "app.kubernetes.io/component=principal", "-c", "principal", "--tail=-1")
	require.NoError(t, err)
	require.Contains(t, logs, agentID)
}

// deniesStrangers: who has no identity gets no connection, and who has another one than those that the policies name is denied.
func (m *meshes) deniesStrangers(t *testing.T) {
	in := map[string]string{"sidecar.istio.io/inject": "true"}
	out := map[string]string{"sidecar.istio.io/inject": "false"}
	stranger, plain := m.stranger(t, m.hub, "stranger", in), m.stranger(t, m.hub, "plain", out)
	for name, port := range map[string]string{
		"argocd-agent-principal": "8443", "argocd-agent-resource-proxy": "9090", "argocd-agent-redis-proxy": "6379", "argocd-agent-xds": "18000", "argocd-redis": "6379",
	} {
		said := answered(t, m.hub, plain, name, port)
		require.Empty(t, said, "%s serves who has no identity", name)
		if name == "argocd-redis" { // no policy of ours
			continue
		}
		said = answered(t, m.hub, stranger, name, port)
		require.NotContains(t, said, "200 OK", name)
		require.NotContains(t, said, "PONG", name)
		if name == "argocd-agent-resource-proxy" {
			require.Contains(t, said, "RBAC: access denied")
		}
	}
	// The same at the gateway, from the other cluster: it has an identity that the mesh trusts, and is no agent.
	other := m.stranger(t, m.spoke, "stranger", in)
	said := answered(t, m.spoke, other, "hub.example.com", "443")
	require.Contains(t, said, "RBAC: access denied")
}

// stranger is a Pod with a ServiceAccount of its own.
func (m *meshes) stranger(t *testing.T, s *installation.Site, name string, labels map[string]string) *corev1.Pod {
	t.Helper()
	_, err := s.Kubernetes.CoreV1().ServiceAccounts(installation.Namespace).Create(within(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return runsAs(t, s, installation.Namespace, name, name, labels, "sleep", "1000000")
}

// answered is what a Pod is answered that sends a request which HTTP servers, and Redis, answer.
func answered(t *testing.T, s *installation.Site, pod *corev1.Pod, host, port string) string {
	t.Helper()
	out, err := execute(t, s, pod, "sh", "-c", `printf 'GET /version HTTP/1.1\r\nHost: `+host+`\r\nConnection: close\r\n\r\nPING\r\n' | nc -w 10 `+host+" "+port)
	if err != nil {
		t.Log(host, err)
	}
	return out
}

// logsNoSecrets: sidecars log who asked what, and none of what proves who somebody is.
func (m *meshes) logsNoSecrets(t *testing.T) {
	for _, s := range []*installation.Site{m.hub, m.spoke} {
		logs, err := s.Kubectl(within(t), "logs", "-n", installation.Namespace, "-l", "app.kubernetes.io/part-of=argocd-agent", "-c", "istio-proxy", "--tail=-1")
		require.NoError(t, err)
		require.Contains(t, logs, "/argocdagent.tunnel.v1.", "there are access logs")
		for _, secret := range []string{"Bearer", "eyJ", "BEGIN", "argocd.token"} {
			require.NotContains(t, logs, secret)
		}
	}
}
