package hub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// servers are the addresses of agents' clusters.
type servers map[string]string

func (s servers) Server(agent string) string { return s[agent] }
func (s servers) Has(agent string) bool      { return s[agent] != "" }
func (servers) Wait(context.Context) bool    { return true }

// newTestHub returns a hub, and its log. Tests write to the hub's stores. It has a cluster Secret of the agent berlin.
func newTestHub(t *testing.T) (*Hub, *bytes.Buffer) {
	t.Helper()
	return newTestHubWithMapping(t, mapping.ByNamespace{})
}

func newTestHubWithMapping(t *testing.T, m mapping.Mapping) (*Hub, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	selector, err := facets.ParseSelector("")
	require.NoError(t, err)
	h, err := New(Options{
		Config: &rest.Config{Host: "http://127.0.0.1:0"}, Namespace: "argocd", Mapping: m, Selector: selector,
		Clusters: servers{"berlin": "https://proxy?agentName=berlin"},
		Reporter: facets.NewLogReporter(slog.New(slog.DiscardHandler), nil, nil), // nothing is applied
		Session:  func(string) (string, bool) { return "", false }, Leads: func(string) bool { return true },
		Directory: make(directory), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	return h, &log
}

// setConnected has an agent be connected, or not.
func (h *Hub) setConnected(agent string, connected bool) {
	others := h.options.Session
	h.options.Session = func(name string) (string, bool) {
		if name != agent {
			return others(name)
		}
		return map[bool]string{true: string(facets.Autonomous), false: string(facets.Managed)}[h.autonomous(agent)], connected
	}
	h.ConnectionChanged(agent)
}

func (h *Hub) connect(agent string, mode facets.Mode) {
	h.Sharing(time.Minute, func(string) converge.Observer { return nil })(agent, string(mode))
}

// revision numbers what is written.
type revision int

func (r *revision) of(name string, labels map[string]string) metav1.ObjectMeta {
	*r++
	return metav1.ObjectMeta{Namespace: "argocd", Name: name, Labels: labels, ResourceVersion: strings.Repeat("1", int(*r))}
}

// lines returns what was logged since it was asked last.
func lines(log *bytes.Buffer) []string {
	text := strings.TrimSpace(log.String())
	log.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestRepositorySecretWithoutAgentIsLogged(t *testing.T) {
	t.Parallel()
	h, log := newTestHub(t)
	var r revision
	write := func(labels map[string]string, project, url string) []string {
		data := map[string]string{"url": base64.StdEncoding.EncodeToString([]byte(url))}
		if project != "" {
			data["project"] = base64.StdEncoding.EncodeToString([]byte(project))
		}
		_, err := h.cluster.Secrets.Store.RecordWrite(&argocd.Object{ObjectMeta: r.of("repo", labels), Data: data})
		require.NoError(t, err)
		return lines(log)
	}
	of := func(use string) map[string]string { return map[string]string{argocd.LabelSecretType: use} }
	logged := write(of("repositroy"), "team", "a")
	require.Len(t, logged, 1)
	require.Contains(t, logged[0], `Repository Secret matches no agent`)
	require.Contains(t, logged[0], `name=repo`)
	require.Contains(t, logged[0], `\"repositroy\" is no type that Argo CD knows: want repository or repo-creds`)
	require.Empty(t, write(of("repositroy"), "team", "b"), "logged already")
	for project, fault := range map[string]string{"team\n": "white space around the name", " team": "white space around the name", "Hunter2!": "no name that a project can have"} {
		logged = write(of("repository"), project, "b")
		require.Len(t, logged, 1)
		require.Contains(t, logged[0], "level=WARN")
		require.Contains(t, logged[0], fault)
		require.NotContains(t, logged[0], strings.TrimSpace(project)+"\"", "what is in a Secret gets into no log")
		require.Empty(t, write(of("repository"), project, "c"), "logged already")
		require.Empty(t, write(of("repository"), "team", "b"))
	}
	logged = write(of("repository"), "", "b")
	require.Len(t, logged, 1)
	require.Contains(t, logged[0], "it belongs to no project")
	require.Empty(t, write(of("repo-creds"), "", "c"))
	require.Empty(t, write(of("repository"), "team", "c"))
	require.Len(t, write(of("repository"), "", "c"), 1)
	require.Empty(t, write(map[string]string{argocd.LabelSecretType: "repositroy", argocd.LabelIgnore: "true"}, "", "c"))
}

func TestRepositorySecretOfMissingAppProjectIsLogged(t *testing.T) {
	t.Parallel()
	h, log := newTestHub(t)
	var r revision
	write := func(name, project, url string, labels map[string]string) []string {
		encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
		meta := r.of(name, map[string]string{argocd.LabelSecretType: "repository"})
		maps.Copy(meta.Labels, labels)
		_, err := h.cluster.Secrets.Store.RecordWrite(&argocd.Object{ObjectMeta: meta, Data: map[string]string{"url": encode(url), "project": encode(project)}})
		require.NoError(t, err)
		return lines(log)
	}
	project := func(name string) *argocd.Record {
		record, err := h.cluster.Projects.Store.RecordWrite(&argocd.Object{ObjectMeta: r.of(name, nil), Spec: json.RawMessage(`{}`)})
		require.NoError(t, err)
		return record
	}
	logged := func(what []string, secret, project string) {
		t.Helper()
		require.Len(t, what, 1)
		require.Contains(t, what[0], "level=INFO")
		require.Contains(t, what[0], "Repository Secret matches no agent")
		require.Contains(t, what[0], "name="+secret)
		require.Contains(t, what[0], `there is no project \"`+project+`\": create it, or correct the Secret's project`)
	}
	ignored := map[string]string{argocd.LabelIgnore: "true"}
	require.Empty(t, write("first", "taem", "a", nil), "the project may be known soon")
	require.Empty(t, write("second", "team", "a", nil))
	require.Empty(t, write("ignored", "taem", "a", ignored))
	team := project("team")
	h.StartupDone()
	logged(lines(log), "first", "taem")
	require.Empty(t, write("first", "taem", "b", nil), "logged already")
	require.Empty(t, write("ignored", "taem", "b", ignored))
	require.Empty(t, write("first", "team", "b", nil))
	logged(write("first", "other", "b", nil), "first", "other")
	project("other")
	require.Empty(t, lines(log))
	require.Empty(t, write("first", "other", "c", nil))
	logged(write("third", "taem", "a", nil), "third", "taem")

	h.cluster.Projects.Store.RecordDelete(team.Name, team)
	logged(lines(log), "second", "team")
}

func TestAppProjectWithoutAgentIsLogged(t *testing.T) {
	t.Parallel()
	h, log := newTestHub(t)
	var r revision
	write := func(destination, description string, annotations map[string]string) []string {
		meta := r.of("team", nil)
		meta.Annotations = annotations
		spec, err := json.Marshal(map[string]any{
			"description": description, "sourceNamespaces": []string{"*"}, "destinations": []any{map[string]string{"name": destination, "namespace": "*"}},
		})
		require.NoError(t, err)
		_, err = h.cluster.Projects.Store.RecordWrite(&argocd.Object{ObjectMeta: meta, Spec: spec})
		require.NoError(t, err)
		return lines(log)
	}
	require.Empty(t, write("berlim", "", nil), "no agent has connected")
	h.connect("rome", facets.Autonomous)
	require.Empty(t, write("berlim", "a", nil), "no managed agent has connected")
	h.connect("berlin", facets.Managed)
	h.connect("paris", facets.Managed)
	logged := write("berlim", "b", nil)
	require.Len(t, logged, 1)
	require.Contains(t, logged[0], "AppProject matches no connected agent")
	require.Contains(t, logged[0], "name=team")
	require.Empty(t, write("berlim", "b", map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}), "logged already")
	require.Empty(t, write("berlin", "b", nil))
	require.Len(t, write("nobody", "b", nil), 1)
	require.Empty(t, write("nobody", "c", map[string]string{argocd.AnnotationAgent: "rome"}), "it shows an agent's own")
}
