package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

const (
	independentAgent = "free"
	generatedName    = "generated-one"
)

// ownSet is an ApplicationSet of a spoke's own, which makes one Application, synced when somebody asks for it.
const ownSet = `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: generated, namespace: argocd}
spec:
  generators: [{list: {elements: [{who: one}]}}]
  syncPolicy: {preserveResourcesOnDeletion: true}
  template:
    metadata: {name: "generated-{{who}}"}
    spec:
      project: default
      source: {repoURL: %q, path: guestbook, targetRevision: main}
      destination: {server: "https://kubernetes.default.svc", namespace: "generated-{{who}}"}
      syncPolicy: {syncOptions: [CreateNamespace=true]}
`

// independent is a spoke with all of Argo CD on which applications are defined, and a hub that shows them.
type independent struct {
	lab       *lab.Lab
	generated *guestbook // by an ApplicationSet of the spoke's own
	stuck     *guestbook
}

// What a person does on the hub with applications of an autonomous agent, with the real Argo CD on both sides.
func TestUIWorksWithAnAutonomousSpoke(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab of its own: make e2e runs it")
	}
	i := newIndependent(t)
	for _, s := range []struct {
		name string
		does func(*independent, *testing.T)
	}{
		{"shows", (*independent).shows},
		{"syncs-and-refreshes", (*independent).syncs},
		{"reads-edits-and-acts", (*independent).isLive},
		{"a-deletion-is-undone", (*independent).undoesADeletion},
		{"terminates", (*independent).terminates},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.does(i, t) }) {
			t.Fatalf("the steps after it rest on it\n%s", i.lab.Report())
		}
	}
}

// newIndependent starts one. The repository has all before Argo CD looks into it for the first time.
func newIndependent(t *testing.T) *independent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{
		Spokes: []string{independentAgent}, ArgoCD: true, Pods: true, Agents: true, Agent: lab.AgentOptions{Mode: "autonomous"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	_, err = l.Git.Commit(ctx, "Something that never gets well", map[string]string{"stuck/stuck.yaml": stuckManifest})
	require.NoError(t, err)
	sets, err := l.Spoke(independentAgent).ArgoCD.StartApplicationSets(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, sets.Stop) })
	i := &independent{lab: l}
	i.generated, i.stuck = i.of(generatedName, lab.GuestbookPath), i.of("stuck", "stuck")
	return i
}

// of declares an Application of the spoke's own.
func (i *independent) of(name, path string) *guestbook {
	return &guestbook{twin: ownOf(i.lab, independentAgent, name, path, name)}
}

func (i *independent) shows(t *testing.T) {
	objects, err := cluster.Parse(fmt.Appendf(nil, ownSet, i.lab.Git.URL))
	require.NoError(t, err)
	require.NoError(t, i.lab.Spoke(independentAgent).Apply(t.Context(), objects[0]))
	i.generated.spoke.becomes(t, has("OutOfSync", "status", "sync", "status"))
	shown := i.generated.shown(t, has("OutOfSync", "status", "sync", "status"),
		has(independentAgent+"-default", "spec", "project"), has(independentAgent, "spec", "destination", "name"))
	require.Empty(t, shown.GetOwnerReferences(), "the owner is on the spoke only")
	project(i.lab.Hub, lab.Namespace, independentAgent+"-default").becomes(t)
}

// syncs has the ApplicationSet wipe what it did not write while a sync runs: what is asked for once is done once all the same.
func (i *independent) syncs(t *testing.T) {
	app := i.generated
	starts := watch(t, app.spoke)
	clickSync(t, app.twin)
	app.spoke.edit(t, annotate("example.com/mine", "yes"))
	app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(1))
	app.spoke.becomes(t, annotated("example.com/mine", ""))
	asked := watch(t, app.spoke)
	clickRefresh(t, app.twin, "hard")
	require.Equal(t, []string{"hard"}, asked.distinct(func(object *unstructured.Unstructured) string {
		return object.GetAnnotations()[refreshAnnotation]
	}))
	app.hub.becomes(t, syncedAndHealthy, annotated(refreshAnnotation, ""), annotated("example.com/mine", ""), ran(1))
	require.Len(t, starts.distinct(startOf), 1)
}

func (i *independent) isLive(t *testing.T) {
	g := i.generated
	for _, n := range g.tree(t) {
		if n.Kind == "Pod" {
			g.pod = n.Name
		}
	}
	require.NotEmpty(t, g.pod)
	g.readsAndEdits(t)
	g.readsLogs(t)
	g.readsEvents(t)
	g.restarts(t)
}

func (i *independent) undoesADeletion(t *testing.T) {
	shown, own := i.generated.hub.get(t), i.generated.spoke.get(t)
	ask(t, http.MethodDelete, i.generated.twin, "", "&cascade=true", nil)
	i.generated.shown(t, anew(shown), finalized())
	i.generated.spoke.remains(t, own)
	i.generated.configMap().get(t)
}

func (i *independent) terminates(t *testing.T) {
	require.NoError(t, i.stuck.spoke.cluster.Apply(t.Context(), i.stuck.onSpoke()))
	i.stuck.shown(t, has("OutOfSync", "status", "sync", "status"))
	clickSync(t, i.stuck.twin)
	running := i.stuck.hub.becomes(t, phase("Running"))
	clickTerminate(t, i.stuck.twin)
	over := i.stuck.hub.becomes(t, phase("Failed"), idle)
	require.Equal(t, startOf(running), startOf(over))
	require.Contains(t, text(over, "status", "operationState", "message"), "terminated")
}
