package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
)

// explain says what is wrong on some sites.
func explain(t *testing.T, sites ...*installation.Site) fmt.Stringer {
	t.Helper()
	return installation.Explain(t.Context(), sites...)
}

// A reader of docs/getting-started.md has a hub and a spoke, and what the page promises; a spoke more is autonomous. Then people work with it.
func TestInstalledByCharts(t *testing.T) {
	t.Parallel()
	reader, err := shared.Reader(within(t))
	require.NoError(t, err)
	read, err := reader.Guide("getting-started.md")
	require.NoError(t, err)
	g := guide{read, shared.Sites}
	g.run(t, "create namespace argocd")
	g.run(t, "create namespace argocd", "kubectl --context hub", ":", "--context spoke", "--context tokyo")
	g.run(t, "helm install argocd-agent "+shared.Chart("hub"))
	g.run(t, "patch configmap argocd-cmd-params-cm")
	require.NoError(t, g.ConfigureArgoCD(within(t)))
	g.run(t, "agent create berlin")
	g.run(t, "agent create berlin", "berlin", "tokyo", "context spoke", "context tokyo", "--output-values", "--mode autonomous --output-values")
	g.run(t, "kind: Application")
	g.run(t, "helm test")
	require.Empty(t, g.Unread(), "these commands of the page nobody has tried")

	managed := installed{g, hub, spoke, "berlin", "guestbook", argocd.Named("berlin", "guestbook"), argocd.Named("argocd", "guestbook")}
	autonomous := installed{g, hub, tokyo, "tokyo", "guestbook", argocd.Named("tokyo", "guestbook"), argocd.Named("argocd", "guestbook")}
	apply(t, tokyo, defaultProject(), argocd.New(argocd.Application{
		Namespace: installation.Namespace, Name: "guestbook", RepoURL: g.Git.URL, Path: "guestbook", Into: "guestbook",
	}))
	u := logIn(t, "", hub, spoke, tokyo)
	for _, app := range []installed{managed, autonomous} {
		t.Run(app.agent, func(t *testing.T) {
			app.requireHealthy(t)
			app.worksInTheUI(t, u)
		})
	}
	t.Run("ApplicationSets", func(t *testing.T) { applicationSets(t, g) })
	t.Run("kubelet", func(t *testing.T) { managed.outlivesItsKubelet(t, u) })
	if !testing.Short() {
		t.Run("upgrade", func(t *testing.T) { upgrade(t, g, u, managed, autonomous) })
	}
	t.Run("uninstall", func(t *testing.T) { uninstall(t, g, managed, autonomous) })
}

// guide is a page of the docs, which somebody follows on some sites.
type guide struct {
	*installation.Guide

	sites []*installation.Site
}

// run runs the block of commands that has a text, and returns what it prints.
func (g guide) run(t *testing.T, with string, replacements ...string) string {
	t.Helper()
	out, err := g.Run(within(t), with, replacements...)
	require.NoError(t, err, explain(t, g.sites...))
	t.Log(out)
	return out
}

// installed is an Application of an agent, as both sides have it.
type installed struct {
	guide

	hub, spoke     *installation.Site
	agent, into    string // its agent, and the namespace of what it deploys
	onHub, onSpoke cluster.Selection
}

func (a installed) requireHealthy(t *testing.T) {
	t.Helper()
	_, err := a.hub.Wait(within(t), a.onHub, argocd.SyncedAndHealthy)
	require.NoError(t, err, explain(t, a.hub, a.spoke))
	_, err = a.spoke.Wait(within(t), a.onSpoke, argocd.SyncedAndHealthy)
	require.NoError(t, err, explain(t, a.hub, a.spoke))
}

// pod is the Application's own, when the newest of its Deployment is ready and the only one.
func (a installed) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	require.NoError(t, a.spoke.Settled(within(t), a.into))
	pods, err := a.spoke.Kubernetes.CoreV1().Pods(a.into).List(within(t), metav1.ListOptions{LabelSelector: "app=guestbook-ui"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	return &pods.Items[0]
}

// worksInTheUI is what a person does there with live resources.
func (a installed) worksInTheUI(t *testing.T, u ui) {
	t.Helper()
	pod := a.pod(t)
	path := "/api/v1/applications/" + a.onHub.Name
	in := url.Values{"appNamespace": {a.agent}, "namespace": {a.into}}

	var tree struct{ Nodes []struct{ Kind, Name string } }
	require.NoError(t, json.Unmarshal(u.ask(t, http.MethodGet, path+"/resource-tree?"+in.Encode(), nil), &tree))
	require.Contains(t, tree.Nodes, struct{ Kind, Name string }{"Pod", pod.Name})

	lines := u.follow(t, path+"/pods/"+pod.Name+"/logs?follow=true&container=guestbook-ui&"+in.Encode())
	lines.until(t, "serving")
	output, err := execute(t, a.spoke, pod, "sh", "-c", `printf 'GET /none HTTP/1.0\r\n\r\n' | nc guestbook-ui.`+a.into+" 80")
	require.NoError(t, err, output)
	lines.until(t, "response:404")

	shell := u.open(t, url.Values{
		"pod": {pod.Name}, "container": {"guestbook-ui"}, "appName": {a.onHub.Name}, "appNamespace": {a.agent},
		"projectName": {a.project(t)}, "namespace": {a.into}, "shell": {"sh"},
	})
	shell.shows(t, "$ ") // what is typed before is thrown away by the shell
	shell.says(t, "echo $((6 * 7)) in $HOSTNAME\n")
	shell.shows(t, "42 in "+pod.Name)

	u.ask(t, http.MethodPost, path+"/resource/actions/v2", map[string]any{
		"name": a.onHub.Name, "appNamespace": a.agent, "namespace": a.into, "resourceName": "guestbook-ui",
		"version": "v1", "group": "apps", "kind": "Deployment", "action": "restart",
	})
	_, err = a.spoke.Wait(within(t), podsNamed(a.into, pod.Name), func(object *unstructured.Unstructured) bool { return object == nil })
	require.NoError(t, err)
	a.requireHealthy(t)
}

func (a installed) project(t *testing.T) string {
	t.Helper()
	object, err := a.hub.Get(within(t), a.onHub)
	require.NoError(t, err)
	name, _, err := unstructured.NestedString(object.Object, "spec", "project")
	require.NoError(t, err)
	return name
}

// applicationSets has one of the hub make an Application for the managed agent, and one of the autonomous spoke make one there.
func applicationSets(t *testing.T, g guide) {
	t.Helper()
	for _, s := range []struct {
		site                           *installation.Site
		namespace, selector, at, agent string
	}{
		{hub, "berlin", "matchLabels: {argocd-agent.argoproj-labs.io/agent-name: berlin}", "{{name}}", "berlin"},
		{tokyo, "argocd", "matchExpressions: []", "{{name}}", "tokyo"},
	} {
		generator := "clusters: {selector: {" + s.selector + "}}"
		require.NoError(t, s.site.ApplyYAML(within(t), fmt.Appendf(nil, `
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: many, namespace: %s}
spec:
  generators: [{%s}]
  template:
    metadata: {name: generated}
    spec:
      project: default
      source: {repoURL: %q, path: guestbook, targetRevision: main}
      destination: {name: %q, namespace: generated}
      syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`, s.namespace, generator, g.Git.URL, s.at), s.namespace))
		_, err := hub.Wait(within(t), argocd.Named(s.agent, "generated"), argocd.SyncedAndHealthy)
		require.NoError(t, err, explain(t, g.sites...))
	}
}

// outlivesItsKubelet: while the node's kubelet is away, the agent's Pod goes on, and what the hub wants is done there. What needs the kubelet
// fails with its error, and works when it is back.
func (a installed) outlivesItsKubelet(t *testing.T, u ui) {
	t.Helper()
	require.NoError(t, a.spoke.Node.Kubelet.Stop(within(t)))
	_, err := a.hub.Of(a.onHub).Patch(within(t), a.onHub.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"while":"away"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = a.spoke.Wait(within(t), a.onSpoke, func(object *unstructured.Unstructured) bool { return object.GetLabels()["while"] == "away" })
	require.NoError(t, err)
	logs := "/api/v1/applications/" + a.onHub.Name + "/pods/" + a.pod(t).Name + "/logs?container=guestbook-ui&appNamespace=" + a.agent + "&namespace=" + a.into
	require.Contains(t, u.text(t, logs), "connection refused")
	require.NoError(t, a.spoke.Node.Kubelet.Start(within(t)))
	require.Eventually(t, func() bool { return strings.Contains(u.text(t, logs), "serving") }, timeout, time.Second, "it has to learn of its Pods first")
}

// uninstall leaves what the spokes run alone.
func uninstall(t *testing.T, g guide, apps ...installed) {
	t.Helper()
	before := make(map[string]types.UID)
	for _, a := range apps {
		before[a.agent] = a.pod(t).UID
	}
	_, err := g.Shell.Run(within(t), `
for context in spoke tokyo hub; do helm uninstall argocd-agent --wait --kube-context $context -n argocd; done`)
	require.NoError(t, err, explain(t, g.sites...))
	for _, a := range apps {
		require.Equal(t, before[a.agent], a.pod(t).UID)
		_, err = a.spoke.Wait(within(t), a.onSpoke, argocd.SyncedAndHealthy)
		require.NoError(t, err)
	}
}

func defaultProject() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "default", "namespace": installation.Namespace},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		},
	}}
}

func apply(t *testing.T, s *installation.Site, objects ...*unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, s.Apply(within(t), objects...))
}
