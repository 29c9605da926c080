package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// pruned ends the deletion of the Application on its spoke, as an application controller does that has deleted the resources.
func (a *twin) pruned(t *testing.T) {
	t.Helper()
	a.spoke.becomes(t, beingDeleted)
	a.spoke.edit(t, finalize())
}

// prunes is pruned for each time that the Application is being deleted, until the test is over. The agent makes one again that went before
// it heard of the deletion on the hub, and deletes that then.
func (a *twin) prunes(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			held := func(object *unstructured.Unstructured) bool {
				return object != nil && beingDeleted(object) && len(object.GetFinalizers()) > 0
			}
			if _, err := a.spoke.cluster.Wait(ctx, a.spoke.selection, held); err == nil {
				_ = a.spoke.cluster.Update(ctx, a.spoke.selection, finalize()) // if it fails it is seen again
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-over })
}

// remains fails if the object is gone, is about to go, or is another one than this.
func (s side) remains(t *testing.T, this *unstructured.Unstructured) {
	t.Helper()
	now := s.get(t)
	require.Equal(t, this.GetUID(), now.GetUID())
	require.Nil(t, now.GetDeletionTimestamp())
}

// anew holds for another object than this one, by the same name.
func anew(old *unstructured.Unstructured) condition {
	return func(object *unstructured.Unstructured) bool {
		return object.GetUID() != old.GetUID() && !beingDeleted(object)
	}
}

func namespaceOf(c *lab.Cluster, name string) side { return core(c, "namespaces", "", name) }

// Whoever is first: what is deleted on both sides at once goes on both, and nothing brings it back.
func TestConcurrentDeleteOnBothSides(t *testing.T) {
	t.Parallel()
	for mode, share := range sharing() {
		for kind, finalizers := range map[string][]string{"alone": nil, "with its resources": {cascadeFinalizer}} {
			t.Run(mode+" "+kind, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, "at-once", lab.AgentOptions{Mode: mode}).connected(t)
				app := share(t, s, "app", finalize(finalizers...))
				both, ctx := errgroup.WithContext(t.Context())
				for _, s := range []side{app.hub, app.spoke} {
					both.Go(func() error { return s.cluster.Delete(ctx, s.selection) })
				}
				require.NoError(t, both.Wait())
				if finalizers != nil {
					app.prunes(t)
				}
				app.hub.vanishes(t)
				app.spoke.vanishes(t)
				share(t, s, "later")
				app.spoke.vanishes(t)
				app.hub.vanishes(t)
			})
		}
	}
}

// Only the spoke knows when an application's resources are gone; until then the hub shows it.
func TestMirroredApplicationStaysUntilSpokeDeleteCompletes(t *testing.T) {
	t.Parallel()
	_, app := newAutonomous(t, "pruning", lab.AgentOptions{}, finalize(cascadeFinalizer))
	shown := app.shown(t)
	app.spoke.delete(t)
	app.spoke.becomes(t, beingDeleted)
	app.spoke.edit(t, func(o *unstructured.Unstructured) { set(o, "Missing", "status", "health", "status") })
	app.hub.becomes(t, has("Missing", "status", "health", "status"))
	app.hub.remains(t, shown)
	app.pruned(t)
	app.hub.vanishes(t)
}

func TestAutonomousDeletesAreAppliedAfterReconnect(t *testing.T) {
	t.Parallel()
	s, app := newAutonomous(t, "apart", lab.AgentOptions{})
	app.shown(t)
	stays := s.newOwn("stays").createOnSpoke(t)
	shown := stays.shown(t)
	mark := s.agent.Mark()
	s.agent.Principal.Refuse()
	saysNow(t, s.agent, mark, "Connection to principal failed; retrying")
	app.spoke.delete(t)
	stays.hub.delete(t)
	s.agent.Principal.Restore()
	app.hub.vanishes(t)
	stays.hub.becomes(t, anew(shown))
}

// With its namespace on the hub go all applications of a managed agent, which few people mean. So the agent is told nothing of it
// until an operator says that it is meant. Then each is deleted as its finalizers say. The agent is there for what comes next.
func TestHubNamespaceOfManagedAgentDeleted(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "evicted", lab.AgentOptions{Principal: principal}).connected(t)
	share := sharing()["managed"]
	alone, cascading, single := share(t, s, "alone"), share(t, s, "cascading", finalize(cascadeFinalizer)), share(t, s, "single")
	single.hub.delete(t)
	single.spoke.vanishes(t) // as what somebody deletes by itself does
	before := []*unstructured.Unstructured{alone.spoke.get(t), cascading.spoke.get(t)}
	there := namespaceOf(shared.Hub, s.name)
	there.delete(t)
	says(t, principal, "The deletion of a namespace or CustomResourceDefinition would delete 2 of ", alone.hub.selection.Name+", "+cascading.hub.selection.Name)
	alone.hub.vanishes(t)
	cascading.hub.becomes(t, beingDeleted)
	alone.spoke.remains(t, before[0])
	cascading.spoke.remains(t, before[1])

	hub := guardedSource{shared.Hub, lab.Namespace, principal.Process}
	hub.inShell(t, hub.command(t))
	alone.spoke.vanishes(t)
	cascading.spoke.becomes(t, beingDeleted)
	cascading.pruned(t)
	cascading.spoke.vanishes(t)
	there.vanishes(t)
	says(t, principal, "No deletions are paused any more")

	require.NoError(t, shared.RegisterAgent(t.Context(), s.name))
	share(t, s, "next")
}

// A principal that starts while its namespaces go knows of nothing that went before, but that nothing is left. argocd-agentctl shows
// what is held, and releases it.
func TestDeletedHubNamespaceIsHeldAfterARestart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	const name = "solo"
	own, err := lab.Start(ctx, lab.Options{Spokes: []string{name}, Agents: true, Pods: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	var apps []*twin
	for _, app := range []string{"alone", "cascading"} {
		a := &twin{
			hub: side{own.Hub, argocd.Named(name, app)}, spoke: side{own.Spoke(name), argocd.Named(lab.Namespace, app)},
			declared: argocd.Application{Namespace: name, Name: app, RepoURL: "git://127.0.0.1/none", Path: "none", Destination: name, Into: app, Manual: true},
		}
		a.create(t)
		apps = append(apps, a)
	}
	alone, cascading := apps[0], apps[1]
	cascading.hub.edit(t, finalize(cascadeFinalizer))
	cascading.spoke.becomes(t, finalized(cascadeFinalizer))
	before := []*unstructured.Unstructured{alone.arrives(t), cascading.arrives(t)}
	namespaceOf(own.Hub, name).delete(t)
	const held = "would delete 2 of 2 objects; deletions paused"
	says(t, own.Principal, held)
	alone.hub.vanishes(t)
	require.NoError(t, own.Principal.Restart(ctx))
	says(t, own.Principal, held)
	for i, app := range apps {
		app.spoke.remains(t, before[i])
	}
	var shown string
	require.Eventually(t, func() bool { // the ConfigMap is written after the log
		shown, err = own.Agentctl(ctx, "guard", "list", name)
		return err == nil && strings.Contains(shown, held)
	}, timeout, 100*time.Millisecond, "%s", shown)
	require.Contains(t, shown, "  alone\n  cascading\n")
	listed, err := own.Agentctl(ctx, "agent", "inspect", name)
	require.ErrorContains(t, err, "problems found: 1")
	require.Contains(t, listed, held+": show them with: argocd-agentctl guard list "+name)
	_, err = own.Agentctl(ctx, "guard", "release", name)
	require.NoError(t, err)
	alone.spoke.vanishes(t)
	cascading.pruned(t)
	cascading.spoke.vanishes(t)
	namespaceOf(own.Hub, name).vanishes(t)
}

// With the definition of Applications go all of them, of all agents.
func TestHubDefinitionOfApplicationsDeleted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	const name = "undefined"
	own, err := lab.Start(ctx, lab.Options{Spokes: []string{name}, Agents: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	a := &twin{
		hub: side{own.Hub, argocd.Named(name, "app")}, spoke: side{own.Spoke(name), argocd.Named(lab.Namespace, "app")},
		declared: argocd.Application{Namespace: name, Name: "app", RepoURL: "git://127.0.0.1/none", Path: "none", Destination: name, Into: "app", Manual: true},
	}
	a.create(t)
	replica := a.arrives(t)
	defined := side{own.Hub, definition()}
	defined.delete(t)
	defined.vanishes(t)
	require.NoError(t, argocd.Define(ctx, own.Hub.Cluster, own.Tools))
	says(t, own.Principal, "would delete 1 of 1 objects; deletions paused")
	a.spoke.remains(t, replica)
}

// What an autonomous agent has is shown again as soon as there is somewhere to show it.
func TestHubNamespaceOfAutonomousAgentDeleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flag  string
		again func(t *testing.T, s *site)
	}{
		"and created by the principal": {"--namespace-create-enable", func(*testing.T, *site) {}},
		"and created by a person": {"--namespace-create-enable=false", func(t *testing.T, s *site) {
			require.NoError(t, shared.RegisterAgent(t.Context(), s.name))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{c.flag}})
			s, app := newAutonomous(t, "unseen", lab.AgentOptions{Principal: principal, Args: []string{"--compare-interval=1s"}})
			shown, own := app.shown(t), app.spoke.get(t)
			there := namespaceOf(shared.Hub, s.name)
			before := there.get(t)
			there.delete(t)
			expect(t, there.cluster, there.selection, func(object *unstructured.Unstructured) bool { return object == nil || anew(before)(object) })
			c.again(t, s)
			app.hub.becomes(t, anew(shown))
			app.spoke.remains(t, own)
		})
	}
}

// Somebody deletes Argo CD's namespace on the spoke, and the agent's rights with it. To the hub that is a spoke that lost its
// applications, not a wish.
func TestSpokeNamespaceOfManagedAgentDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t, "wiped", lab.AgentOptions{}).connected(t)
	app := sharing()["managed"](t, s, "app")
	before, replica := app.hub.get(t), app.spoke.get(t)
	there := namespaceOf(s.spoke, s.name)
	there.delete(t)
	there.vanishes(t)
	app.hub.remains(t, before)
	stopped(t, s.agent.Stop)

	startSite(t, s.name, lab.AgentOptions{}).connected(t)
	app.spoke.becomes(t, anew(replica))
	app.hub.remains(t, before)
}

// Where applications are defined it is a wish: there is nothing left to show.
func TestSpokeNamespaceOfAutonomousAgentDeleted(t *testing.T) {
	t.Parallel()
	s, app := newAutonomous(t, "razed", lab.AgentOptions{Args: []string{"--compare-interval=2s"}})
	app.shown(t)
	project(s.spoke, s.name, "own").declare(t, "AppProject", projectFor("*"))
	shown := project(shared.Hub, lab.Namespace, s.name+"-own")
	shown.becomes(t)
	there := namespaceOf(s.spoke, s.name)
	there.delete(t)
	there.vanishes(t)
	app.hub.vanishes(t)
	shown.vanishes(t)
}

// The cluster Secret is what the hub's Argo CD reaches the cluster by. Applications do not hang on it.
func TestClusterSecretDeleted(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "unlisted", lab.AgentOptions{Principal: principal}).connected(t)
	app := sharing()["managed"](t, s, "app")
	replica := app.spoke.get(t)
	core(shared.Hub, "secrets", lab.Namespace, "cluster-"+s.name).delete(t)
	app.hub.edit(t, label("team", "blue"))
	app.spoke.becomes(t, labelled("team", "blue"))
	mark := s.agent.Mark()
	require.NoError(t, principal.Restart(t.Context()))
	saysNow(t, s.agent, mark, lab.ConnectedAgentLine)
	app.hub.edit(t, label("team", "red"))
	app.spoke.becomes(t, labelled("team", "red"))
	app.spoke.remains(t, replica)
}

// An agent that never comes back leaves nothing on the hub that cannot be deleted, and what it left on its spoke goes on. When
// one of its name comes after all, it does what was decided meanwhile.
func TestAgentRemovedPermanently(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gone", lab.AgentOptions{}).connected(t)
	share := sharing()["managed"]
	alone, cascading, kept := share(t, s, "alone"), share(t, s, "cascading", finalize(cascadeFinalizer)), share(t, s, "kept")
	left := make(map[*twin]*unstructured.Unstructured)
	for _, app := range []*twin{alone, cascading, kept} {
		left[app] = app.spoke.get(t)
	}
	stopped(t, s.agent.Stop)
	alone.hub.delete(t)
	alone.hub.vanishes(t)
	cascading.hub.delete(t)
	cascading.hub.becomes(t, beingDeleted)
	cascading.hub.edit(t, finalize()) // as the docs say
	cascading.hub.vanishes(t)
	for app, before := range left {
		app.spoke.remains(t, before)
	}
	start(t, s.agent.Start)
	alone.spoke.vanishes(t)
	cascading.spoke.vanishes(t)
	kept.spoke.remains(t, left[kept])
}
