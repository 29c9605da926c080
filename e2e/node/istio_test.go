package node_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

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
	known := t.Run("agents are known by their SPIFFE IDs", func(t *testing.T) { m.knowsAgents(t, app) })
	require.True(t, known, "the agent may not be known any more")
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
	return &meshes{guide{read, l.Sites}, l, l.Sites[0], l.Sites[1]}
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
			made, err := s.Helm(within(t), "template", "argocd-agent", m.lab.Chart(chart), "--namespace="+installation.Namespace, "--no-hooks", "--kube-version=1.36.1", "--values="+values)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "made.yaml")
			require.NoError(t, os.WriteFile(file, []byte(made), 0o600))
			said, err := s.Istioctl(within(t), "analyze", "--use-kube=false", "--namespace="+installation.Namespace, "--failure-threshold=Info", file)
			require.NoError(t, err, values)
			require.Contains(t, said, "No validation issues found", values)
		}
	}
}

// knowsAgents: the principal knows the agent by the SPIFFE ID that its sidecar has proved to the gateway. When the table names another for the agent,
// this one is cut off, and refused by its name.
func (m *meshes) knowsAgents(t *testing.T, app installed) {
	table := func(id string) string {
		return `kubectl --context hub patch configmap argocd-agent-identities -n argocd --type merge -p '{"data":{"berlin":"` + id + `"}}'`
	}
	for _, id := range []string{"spiffe://" + spokeDomain + "/ns/argocd/sa/another", agentID} {
		_, err := m.Shell.Run(within(t), table(id))
		require.NoError(t, err)
		if id != agentID {
			m.principalsLog(t, "its SPIFFE ID \\\""+agentID+"\\\" is of no form")
		}
	}
	_, err := app.hub.Of(app.onHub).Patch(within(t), app.onHub.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"known":"again"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = app.spoke.Wait(within(t), app.onSpoke, func(object *unstructured.Unstructured) bool { return object.GetLabels()["known"] == "again" })
	require.NoError(t, err, explain(t, m.sites...))
}

// principalsLog waits until one of the principals logs a text.
func (m *meshes) principalsLog(t *testing.T, text string) {
	t.Helper()
	pods := m.hub.Kubernetes.CoreV1().Pods(installation.Namespace)
	all, err := pods.List(within(t), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=principal"})
	require.NoError(t, err)
	ctx, enough := context.WithCancel(within(t))
	defer enough()
	var found atomic.Bool
	var readers sync.WaitGroup
	for _, pod := range all.Items {
		readers.Go(func() {
			lines, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, Container: "principal"}).Stream(ctx)
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled, "the other one has logged it")
				return
			}
			for log := bufio.NewScanner(lines); log.Scan(); {
				if strings.Contains(log.Text(), text) {
					found.Store(true)
					enough()
				}
			}
		})
	}
	readers.Wait()
	require.True(t, found.Load(), "no principal has logged %q\n%s", text, explain(t, m.hub))
}

// deniesStrangers: who has no identity gets no connection, and who has another one than those that the policies name is denied.
func (m *meshes) deniesStrangers(t *testing.T) {
	in := map[string]string{"sidecar.istio.io/inject": "true"}
	out := map[string]string{"sidecar.istio.io/inject": "false"}
	stranger, plain := m.stranger(t, m.hub, "stranger", in), m.stranger(t, m.hub, "plain", out)
	for _, address := range []string{"argocd-agent-principal:8443", "argocd-agent-resource-proxy:9090", "argocd-agent-xds:18000"} {
		require.Contains(t, requests(t, m.hub, stranger, address), "403 Forbidden", address)
		require.NotContains(t, requests(t, m.hub, plain, address), "HTTP/", "%s answers who has no identity", address)
	}
	require.NotEmpty(t, pings(t, m.hub, stranger, "argocd-redis"), "in the mesh, Redis itself answers everybody: no policy of ours is about it")
	require.Empty(t, pings(t, m.hub, plain, "argocd-redis"))
	require.Empty(t, pings(t, m.hub, stranger, "argocd-agent-redis-proxy"))
	require.Empty(t, pings(t, m.hub, plain, "argocd-agent-redis-proxy"))
	// The same at the gateway, from the other cluster: it has an identity that the mesh trusts, and is no agent.
	require.Contains(t, requests(t, m.spoke, m.stranger(t, m.spoke, "stranger", in), "hub.example.com:443"), "403 Forbidden")
}

// stranger is a Pod with a ServiceAccount of its own.
func (m *meshes) stranger(t *testing.T, s *installation.Site, name string, labels map[string]string) *corev1.Pod {
	t.Helper()
	_, err := s.Kubernetes.CoreV1().ServiceAccounts(installation.Namespace).Create(within(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return runsAs(t, s, metav1.ObjectMeta{Namespace: installation.Namespace, Name: name, Labels: labels}, name, "sleep", "1000000")
}

// requests is what a Pod is told that asks by HTTP, and is not to be served.
func requests(t *testing.T, s *installation.Site, pod *corev1.Pod, address string) string {
	t.Helper()
	said, err := execute(t, s, pod, "wget", "-S", "-O-", "http://"+address+"/version")
	require.Error(t, err, said)
	return said
}

// pings is what Redis answers a Pod.
func pings(t *testing.T, s *installation.Site, pod *corev1.Pod, host string) string {
	t.Helper()
	said, err := execute(t, s, pod, "sh", "-c", "echo PING | nc "+host+" 6379 2>/dev/null | cat")
	require.NoError(t, err, said)
	return said
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
