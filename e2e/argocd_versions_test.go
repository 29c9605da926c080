package e2e_test

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

const generatedName = "generated-one"

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

// duet is a hub and one spoke with all of Argo CD, whose agent is called as its mode.
type duet struct {
	lab            *lab.Lab
	mode           facets.Mode
	greeter, stuck *guestbook // Applications that are synced when somebody asks for it, the second one without end
}

// scene is something that a person does.
type scene struct {
	name string
	does func(*duet, *testing.T)
}

// What a person does on the hub with applications of an agent, with the real Argo CD on both sides, of all versions that
// docs/upgrade.md calls supported.
func TestUIWorksWithSupportedArgoCD(t *testing.T) {
	if testing.Short() {
		t.Skip("labs of their own, and Argo CD of other versions: make e2e runs it")
	}
	for _, version := range []struct {
		name  string
		tools []string
	}{
		{"3.4", []string{toolset.ArgoCD34}},
		{"3.5", nil},
	} {
		for mode, steps := range map[facets.Mode][]scene{
			facets.Managed: {
				{"shows", (*duet).showsTheHubs}, {"syncs-and-refreshes", (*duet).syncs}, {"reads-edits-and-acts", (*duet).isLive},
				{"keeps-a-project", (*duet).keepsAProject}, {"deletes", (*duet).deletes}, {"terminates", (*duet).terminates},
			},
			facets.Autonomous: {
				{"shows", (*duet).showsTheSpokes}, {"syncs-and-refreshes", (*duet).syncs}, {"reads-edits-and-acts", (*duet).isLive},
				{"a-deletion-is-undone", (*duet).undoesADeletion}, {"terminates", (*duet).terminates},
			},
		} {
			t.Run(version.name+"/"+string(mode), func(t *testing.T) {
				d := newDuet(t, mode, version.tools)
				d.requireVersion(t, version.name)
				for _, s := range steps {
					if !t.Run(s.name, func(t *testing.T) { s.does(d, t) }) {
						t.Fatalf("the steps after it rest on it\n%s", d.lab.Report())
					}
				}
			})
		}
	}
}

// newDuet starts one. The repository has all before Argo CD looks into it for the first time.
func newDuet(t *testing.T, mode facets.Mode, tools []string) *duet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	agent := string(mode)
	l, err := lab.Start(ctx, lab.Options{
		Spokes: []string{agent}, ArgoCD: true, Pods: true, Agents: true, Agent: lab.AgentOptions{Mode: agent}, Tools: tools,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	_, err = l.Git.Commit(ctx, "Something that never gets well", map[string]string{"stuck/stuck.yaml": stuckManifest})
	require.NoError(t, err)
	sets, err := l.Spoke(agent).ArgoCD.StartApplicationSets(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, sets.Stop) })
	d := &duet{lab: l, mode: mode}
	d.greeter, d.stuck = d.of(generatedName, lab.GuestbookPath), d.of("stuck", "stuck")
	return d
}

// requireVersion requires that all programs of Argo CD are of a minor version.
func (d *duet) requireVersion(t *testing.T, version string) {
	t.Helper()
	seen := 0
	for _, p := range d.lab.Host.Processes() {
		if !strings.HasPrefix(filepath.Base(p.Path()), "argocd-") {
			continue
		}
		seen++
		info, err := buildinfo.ReadFile(p.Path())
		require.NoError(t, err)
		require.Regexp(t, "^v"+version+`\.`, info.Main.Version, p.Name())
	}
	require.Equal(t, 5, seen, "argocd-server, a controller, two repo servers and ApplicationSets")
}

// of declares an Application of the agent's.
func (d *duet) of(name, path string) *guestbook {
	g := &guestbook{twin: ownOf(d.lab, string(d.mode), name, path, name)}
	if d.mode == facets.Managed {
		g.declared.Destination = string(d.mode)
	}
	return g
}

// define creates an Application where those of the agent are defined, and waits until the hub shows what Argo CD finds.
func (d *duet) define(t *testing.T, g *guestbook, changes ...change) {
	t.Helper()
	home, object := g.spoke, g.onSpoke(changes...)
	if d.mode == facets.Managed {
		home = g.hub
		object.SetNamespace(g.declared.Namespace)
	}
	require.NoError(t, home.cluster.Apply(t.Context(), object))
	g.hub.becomes(t, has("OutOfSync", "status", "sync", "status"))
}

func (d *duet) showsTheHubs(t *testing.T) {
	d.define(t, d.greeter, finalize(cascadeFinalizer))
	d.greeter.arrives(t, has("OutOfSync", "status", "sync", "status"))
	require.Contains(t, cliAt(t, d.lab, "cluster", "list"), string(d.mode))
}

func (d *duet) showsTheSpokes(t *testing.T) {
	objects, err := cluster.Parse(fmt.Appendf(nil, ownSet, d.lab.Git.URL))
	require.NoError(t, err)
	require.NoError(t, d.greeter.spoke.cluster.Apply(t.Context(), objects[0]))
	d.greeter.spoke.becomes(t, has("OutOfSync", "status", "sync", "status"))
	agent := string(d.mode)
	shown := d.greeter.shown(t, has("OutOfSync", "status", "sync", "status"),
		has(agent+"-default", "spec", "project"), has(agent, "spec", "destination", "name"))
	require.Empty(t, shown.GetOwnerReferences(), "the owner is on the spoke only")
	project(d.lab.Hub, lab.Namespace, agent+"-default").becomes(t)
}

// syncs has what is not as it was defined be wiped while a sync runs, by the agent or by the ApplicationSet: what is asked for once is
// done once all the same.
func (d *duet) syncs(t *testing.T) {
	app := d.greeter
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

func (d *duet) isLive(t *testing.T) {
	g := d.greeter
	for _, n := range g.tree(t) {
		if n.Kind == "Pod" {
			g.pod = n.Name
		}
	}
	require.NotEmpty(t, g.pod)
	g.readsAndEdits(t)
	g.readsLogs(t)
	g.readsEvents(t)
	shell := g.terminal(t)
	shell.says(t, message{Operation: "stdin", Data: "echo $((6 * 7)) of them\n"})
	shell.shows(t, "42 of them")
	require.Contains(t, cliAt(t, d.lab, "app", "get", g.declared.Namespace+"/"+g.declared.Name, "--output=tree"), g.pod)
	g.restarts(t)
}

// keepsAProject has a project of the hub's permit the same on both sides.
func (d *duet) keepsAProject(t *testing.T) {
	agent := string(d.mode)
	all := spec([]any{map[string]any{"group": "*", "kind": "*"}}, "clusterResourceWhitelist") // such as namespaces
	project(d.lab.Hub, lab.Namespace, "team").declare(t, "AppProject", projectFor(agent), all)
	project(d.lab.Spoke(agent), lab.Namespace, "team").becomes(t)
	inside, outside := d.of("prod-inside", lab.ConfigPath), d.of("outside", lab.ConfigPath)
	d.define(t, inside, spec("team", "project"))
	clickSync(t, inside.twin)
	inside.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle)
	inside.twin.configMap().becomes(t)

	const refusal = "do not match any of the allowed destinations in project"
	object := argocd.New(outside.declared)
	spec("team", "project")(object)
	status, answer := request(t, http.MethodPost, d.lab.Hub.ArgoCD.URL+"/api/v1/applications", object)
	require.Equal(t, http.StatusBadRequest, status, answer)
	require.Contains(t, answer, refusal)
	require.NoError(t, d.lab.Hub.Apply(t.Context(), object)) // whom argocd-server does not stop, the spoke's controller does
	outside.hub.becomes(t, func(object *unstructured.Unstructured) bool {
		return strings.Contains(fmt.Sprint(object.Object["status"]), refusal)
	})
}

func (d *duet) deletes(t *testing.T) {
	ask(t, http.MethodDelete, d.greeter.twin, "", "&cascade=true", nil)
	d.greeter.hub.vanishes(t)
	d.greeter.spoke.vanishes(t)
	d.greeter.configMap().vanishes(t)
}

func (d *duet) undoesADeletion(t *testing.T) {
	shown, own := d.greeter.hub.get(t), d.greeter.spoke.get(t)
	ask(t, http.MethodDelete, d.greeter.twin, "", "&cascade=true", nil)
	d.greeter.shown(t, anew(shown), finalized())
	d.greeter.spoke.remains(t, own)
	d.greeter.configMap().get(t)
}

func (d *duet) terminates(t *testing.T) {
	d.define(t, d.stuck)
	clickSync(t, d.stuck.twin)
	running := d.stuck.hub.becomes(t, phase("Running"))
	clickTerminate(t, d.stuck.twin)
	over := d.stuck.hub.becomes(t, phase("Failed"), idle)
	require.Equal(t, startOf(running), startOf(over))
	require.Contains(t, text(over, "status", "operationState", "message"), "terminated")
}
