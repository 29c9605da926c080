package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// rotations is how many X.509-SVIDs of a minute, of which there is another after half of that, everything outlives: after three the first
// ones have expired.
const rotations = 3

// liveMesh is a lab with a managed and an autonomous agent, whose spokes are called as their modes. All of our programs have
// X.509-SVIDs of a minute, and argocd-server reaches the spokes through them.
type liveMesh struct {
	*mesh
	programs []marked // all of ours
}

func newLiveMesh(t *testing.T) *liveMesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Spokes: []string{"managed", "autonomous"}, ArgoCD: true, Pods: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	m := &liveMesh{mesh: newMeshOn(t, l, "spoke.test", "spiffe://spoke.test"+agentPath+"{agent}")}
	l.Kubeproxy = m.proxy(t, kubeproxySVID, (*lab.Lab).NewKubeproxy)
	redisproxy := m.proxy(t, redisproxySVID, (*lab.Lab).NewRedisproxy)
	m.programs = []marked{m.principal, l.Kubeproxy, redisproxy}
	for _, mode := range []string{"managed", "autonomous"} {
		require.NoError(t, l.RegisterAgent(ctx, mode)) // whose cluster has an address now
		agent, err := l.NewAgent(ctx, lab.AgentOptions{
			Spoke: mode, Mode: mode, Principal: m.principal, WorkloadAPI: m.spoke.Socket, Args: []string{"--principal-spiffe-id=" + principalSVID},
		})
		require.NoError(t, err)
		register(t, m.spoke, "spiffe://spoke.test"+agentPath+mode, agent.Path(), m.hub)
		start(t, agent.Start)
		t.Cleanup(func() { stopped(t, agent.Stop) })
		require.NoError(t, agent.WaitConnected(ctx))
		m.programs = append(m.programs, agent)
	}
	require.NoError(t, l.Hub.ArgoCD.StartServer(ctx, redisproxy.Address))
	return m
}

// guestbook creates an Application with Pods where it is defined, and returns when the hub's argocd-server shows them.
func (m *liveMesh) guestbook(t *testing.T, mode string) *guestbook {
	t.Helper()
	const name = "live"
	g := &guestbook{twin: ownOf(m.lab, mode, name, lab.GuestbookPath, name)}
	g.declared.Manual = false
	if mode == "managed" {
		g.declared.Destination = mode
		create(t, g.hub.cluster, g.hub.selection, argocd.New(g.declared))
	} else {
		create(t, g.spoke.cluster, g.spoke.selection, g.onSpoke())
	}
	g.hub.becomes(t, syncedAndHealthy)
	for _, n := range g.tree(t) {
		if n.Kind == "Pod" {
			g.pod = n.Name
		}
	}
	require.NotEmpty(t, g.pod)
	return g
}

// view is what a person has open in the browser.
type view struct {
	terminal   *terminal
	logs, tree *stream
}

func (m *liveMesh) open(t *testing.T, g *guestbook) *view {
	t.Helper()
	of := g.declared.Name
	v := &view{
		terminal: g.terminal(t),
		logs: followAt(t, m.lab, "/api/v1/applications/"+of+"/pods/"+g.pod+"/logs?follow=true&container=web&appNamespace="+
			g.declared.Namespace+"&namespace="+g.declared.Into),
		tree: followAt(t, m.lab, "/api/v1/stream/applications/"+of+"/resource-tree?appNamespace="+g.declared.Namespace),
	}
	v.terminal.says(t, message{Operation: "stdin", Data: "kept=$((6 * 7))\n"})
	v.logs.until(t, func(line string) bool { return strings.Contains(line, strings.TrimSpace(cluster.PodLog)) })
	v.tree.until(t, func(line string) bool { return strings.Contains(line, g.pod) })
	return v
}

// logs has all containers of a spoke log a line.
func logs(t *testing.T, c *lab.Cluster, line string) {
	t.Helper()
	file, err := os.OpenFile(c.PodLogFile, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = fmt.Fprintf(file, "2026-01-01T00:00:01.000000000Z stdout F %s\n", line)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// goesOn requires that what was opened is open, and that the shell is the one that it was.
func (v *view) goesOn(t *testing.T, g *guestbook, turn int) {
	t.Helper()
	v.terminal.says(t, message{Operation: "stdin", Data: fmt.Sprintf("echo turn %d, $kept kept\n", turn)})
	v.terminal.shows(t, fmt.Sprintf("turn %d, 42 kept", turn))
	line := fmt.Sprintf("logged after rotation %d", turn)
	logs(t, g.spoke.cluster, line)
	v.logs.until(t, func(said string) bool { return strings.Contains(said, line) })
}

// Certificates of minutes do not end what lasts for hours: a terminal, a log and a tree on the screen outlive those by which they were
// opened, of all programs in between.
func TestUILastsLongerThanItsSVIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab of its own, and minutes: make e2e runs it")
	}
	t.Parallel()
	m := newLiveMesh(t)
	books, views := make(map[string]*guestbook), make(map[string]*view)
	for _, mode := range []string{"managed", "autonomous"} {
		books[mode] = m.guestbook(t, mode)
		books[mode].readsAndEdits(t)
		views[mode] = m.open(t, books[mode])
	}
	for turn := range rotations {
		marks := make([]int64, len(m.programs))
		for i, program := range m.programs {
			marks[i] = program.Mark()
		}
		for i, program := range m.programs {
			saysSlowly(t, program, marks[i], `from="X.509-SVID`)
		}
		for mode, v := range views {
			v.goesOn(t, books[mode], turn)
			books[mode].readsAndEdits(t)
		}
	}
	for mode, v := range views {
		g := books[mode]
		apps := side{g.spoke.cluster, cluster.Selection{Resource: deployments(), Namespace: g.declared.Into, Name: "guestbook"}}
		apps.edit(t, func(object *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(object.Object, "changed", "spec", "template", "metadata", "labels", "now"))
		})
		v.tree.until(t, func(line string) bool { return strings.Count(line, `"kind":"ReplicaSet"`) >= 2 })
	}
}
