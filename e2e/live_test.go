package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// guestbook is an Application with Pods, as a person on the hub sees it: through argocd-server.
type guestbook struct {
	*twin
	pod string // one of its Pods
}

// newGuestbook creates one, and returns when argocd-server shows its Pods.
func newGuestbook(t *testing.T, agent, name string) *guestbook {
	t.Helper()
	app := newTwin(agent, name).automated()
	app.declared.Path = lab.GuestbookPath
	g := &guestbook{twin: app.create(t, finalize(cascadeFinalizer))}
	g.hub.becomes(t, syncedAndHealthy)
	for _, n := range g.tree(t) {
		if n.Kind == "Pod" {
			g.pod = n.Name
		}
	}
	require.NotEmpty(t, g.pod, "the tree of a healthy Application has its Pods")
	return g
}

// node is a node of a resource tree.
type node struct {
	Group, Version, Kind, Namespace, Name, UID string
}

// tree returns the resource tree that argocd-server shows.
func (g *guestbook) tree(t *testing.T) []node {
	t.Helper()
	var tree struct{ Nodes []node }
	require.NoError(t, json.Unmarshal([]byte(ask(t, http.MethodGet, g.twin, "/resource-tree", "", nil)), &tree))
	return tree.Nodes
}

// of returns the query that names a resource.
func (g *guestbook) of(group, version, kind, name string) string {
	return "&" + url.Values{
		"group": {group}, "version": {version}, "kind": {kind}, "namespace": {g.declared.Into}, "resourceName": {name},
	}.Encode()
}

func (g *guestbook) configMap() side {
	return core(g.spoke.cluster, "configmaps", g.declared.Into, "guestbook")
}

// both runs a test for a spoke each, at once.
func both(t *testing.T, test func(t *testing.T, agent string)) {
	t.Helper()
	for _, agent := range []string{"a", "b"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			test(t, agent)
		})
	}
}

// What a person does with an application of a spoke, in the order in which the UI offers it.
func TestUILiveResources(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, agent string) {
		g := newGuestbook(t, agent, "ui")
		kinds := make(map[string]int)
		for _, n := range g.tree(t) {
			kinds[n.Kind]++
		}
		for kind, count := range map[string]int{"ConfigMap": 1, "Deployment": 1, "ReplicaSet": 1, "Service": 1, "Pod": 2} {
			require.Equal(t, count, kinds[kind], kind)
		}
		g.readsAndEdits(t)
		g.readsLogs(t)
		g.readsEvents(t)
		g.actsAndDeletes(t)
	})
}

func (g *guestbook) readsAndEdits(t *testing.T) {
	t.Helper()
	shown := ask(t, http.MethodGet, g.twin, "/managed-resources", "", nil)
	require.Contains(t, shown, `greeting`, "the diff view has the manifests")

	configMap := g.of("", "v1", "ConfigMap", "guestbook")
	require.Contains(t, ask(t, http.MethodGet, g.twin, "/resource", configMap, nil), `hello`)
	ask(t, http.MethodPost, g.twin, "/resource", configMap+"&patchType=application/merge-patch%2Bjson",
		`{"metadata":{"labels":{"edited":"in-the-ui"}}}`)
	g.configMap().becomes(t, func(object *unstructured.Unstructured) bool { return object.GetLabels()["edited"] == "in-the-ui" })
	ask(t, http.MethodPost, g.twin, "/resource", configMap+"&patchType=application/json-patch%2Bjson",
		`[{"op":"add","path":"/metadata/labels/patched","value":"by-json"}]`)
	g.configMap().becomes(t, func(object *unstructured.Unstructured) bool { return object.GetLabels()["patched"] == "by-json" })
}

func (g *guestbook) readsLogs(t *testing.T) {
	t.Helper()
	logs := ask(t, http.MethodGet, g.twin, "/pods/"+g.pod+"/logs", "&container=web&namespace="+g.declared.Into, nil)
	require.Contains(t, logs, strings.TrimSpace(cluster.PodLog))
}

func (g *guestbook) readsEvents(t *testing.T) {
	t.Helper()
	for _, n := range g.tree(t) {
		if n.Kind == "ReplicaSet" {
			events := ask(t, http.MethodGet, g.twin, "/events", "&"+url.Values{
				"resourceName": {n.Name}, "resourceNamespace": {n.Namespace}, "resourceUID": {n.UID},
			}.Encode(), nil)
			require.Contains(t, events, "SuccessfulCreate")
		}
	}
}

func (g *guestbook) restarts(t *testing.T) {
	t.Helper()
	deployment := g.of("apps", "v1", "Deployment", "guestbook")
	require.Contains(t, ask(t, http.MethodGet, g.twin, "/resource/actions", deployment, nil), "restart")
	ask(t, http.MethodPost, g.twin, "/resource/actions/v2", "", map[string]any{
		"appNamespace": g.declared.Namespace, "namespace": g.declared.Into, "resourceName": "guestbook",
		"group": "apps", "version": "v1", "kind": "Deployment", "action": "restart",
	})
	apps := cluster.Selection{Resource: deployments(), Namespace: g.declared.Into, Name: "guestbook"}
	side{g.spoke.cluster, apps}.becomes(t, func(object *unstructured.Unstructured) bool {
		restarted, _, _ := unstructured.NestedString(object.Object, "spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")
		return restarted != ""
	})
}

func (g *guestbook) actsAndDeletes(t *testing.T) {
	t.Helper()
	g.restarts(t)
	before := g.configMap().get(t).GetUID()
	ask(t, http.MethodDelete, g.twin, "/resource", g.of("", "v1", "ConfigMap", "guestbook"), nil)
	g.configMap().becomes(t, func(object *unstructured.Unstructured) bool {
		return object.GetUID() != before // the controller makes it anew
	})
}

// The tree on the screen follows what happens on the spoke.
func TestUIResourceTreeFollowsSpoke(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, agent string) {
		g := newGuestbook(t, agent, "follow")
		trees := follow(t, "/api/v1/stream/applications/"+g.declared.Name+"/resource-tree?appNamespace="+agent)
		apps := side{g.spoke.cluster, cluster.Selection{Resource: deployments(), Namespace: g.declared.Into, Name: "guestbook"}}
		apps.edit(t, func(object *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(object.Object, "changed", "spec", "template", "metadata", "labels", "now"))
		})
		trees.until(t, func(line string) bool { return strings.Count(line, `"kind":"ReplicaSet"`) >= 2 })
	})
}

// A log that is followed goes on, and ends when its reader goes.
func TestUIFollowsLogs(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, agent string) {
		g := newGuestbook(t, agent, "logs")
		lines := follow(t, "/api/v1/applications/"+g.declared.Name+"/pods/"+g.pod+"/logs?follow=true&container=web&appNamespace="+agent+
			"&namespace="+g.declared.Into)
		lines.until(t, func(line string) bool { return strings.Contains(line, strings.TrimSpace(cluster.PodLog)) })
	})
}

// The hub's list of clusters shows what an agent's is.
func TestUIShowsAgentsAsClusters(t *testing.T) {
	t.Parallel()
	newGuestbook(t, "a", "clusters")
	seen := 0
	for _, c := range clusters(t) {
		if c.Name != "a" && c.Name != "b" {
			continue
		}
		seen++
		require.Equal(t, "Successful", c.Info.ConnectionState.Status, "%s: %s", c.Name, c.Info.ConnectionState.Message)
	}
	require.Equal(t, 2, seen)
}

// fetch asks argocd-server.
func fetch(t *testing.T, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shared.Hub.ArgoCD.URL+path, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", answer)
	return string(answer)
}

// stream is an answer of argocd-server that goes on, line by line. It begins with the first thing there is to say.
type stream struct {
	answer chan *http.Response
	lines  *bufio.Scanner // nil before there is an answer
}

// streamTimeout is how long a stream may go on.
const streamTimeout = 5 * time.Minute

// follow asks argocd-server for a stream, which ends with the test.
func follow(t *testing.T, path string) *stream {
	t.Helper()
	return followAt(t, shared, path)
}

// followAt is follow for a lab of a test's own.
func followAt(t *testing.T, l *lab.Lab, path string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), streamTimeout)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.Hub.ArgoCD.URL+path, nil)
	require.NoError(t, err)
	s := &stream{answer: make(chan *http.Response, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.answer)
		response, err := http.DefaultClient.Do(request) //nolint:bodyclose // until closes it
		if err == nil {
			s.answer <- response
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// until reads until a line is as it should be.
func (s *stream) until(t *testing.T, is func(line string) bool) {
	t.Helper()
	if s.lines == nil {
		response := <-s.answer
		require.NotNil(t, response, "no answer came\n%s", shared.Report())
		t.Cleanup(func() { _ = response.Body.Close() })
		require.Equal(t, http.StatusOK, response.StatusCode)
		s.lines = bufio.NewScanner(response.Body)
		s.lines.Buffer(nil, 8<<20)
	}
	last := ""
	for s.lines.Scan() {
		if last = s.lines.Text(); is(last) {
			return
		}
	}
	require.FailNow(t, "the stream ended", "%v; last: %.2000s\n%s", s.lines.Err(), last, shared.Report())
}
