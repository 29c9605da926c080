package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
)

// byDestination is the flag of both sides.
const byDestination = "--destination-based-mapping=true"

// federation is a principal of a test's own that maps by destination, and the agents of it.
type federation struct {
	principal *lab.Principal
	known     *directory.Directory // what the hub's components are told
	teams     string               // how the namespaces begin that are allowed
}

// newFederation makes a federation without agents. No other test has namespaces that begin like its own: agents that map by
// destination look at all namespaces of a spoke, and there may be several of one spoke here.
func newFederation(t *testing.T) *federation {
	t.Helper()
	f := &federation{teams: unique("teams") + "-of"}
	f.principal = newPrincipal(t, lab.PrincipalOptions{Args: []string{byDestination, "--allowed-namespaces=" + f.teams + "-*"}})
	f.known = watchDirectory(t, f.principal)
	return f
}

// newSite makes a site of the federation, which allows the same namespaces as the hub.
func (f *federation) newSite(t *testing.T, name string, options lab.AgentOptions) *site {
	t.Helper()
	return f.newSiteFor(t, name, f.teams+"-*", options)
}

// newSiteFor makes a site of the federation that allows other namespaces.
func (f *federation) newSiteFor(t *testing.T, name, allowed string, options lab.AgentOptions) *site {
	t.Helper()
	options.Principal = f.principal
	options.Args = append([]string{byDestination, "--allowed-namespaces=" + allowed}, options.Args...)
	return newSite(t, name, options).connected(t)
}

// team makes a namespace that is allowed, on the hub and on the spokes of these sites.
func (f *federation) team(t *testing.T, name string, sites ...*site) string {
	t.Helper()
	name = f.teams + "-" + name
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(name)))
	for _, s := range sites {
		require.NoError(t, s.spoke.Apply(t.Context(), namespace(name)))
	}
	return name
}

// within declares an Application of the site's agent that is in that namespace on both sides.
func (s *site) within(namespace, name string) *twin {
	a := s.newTwin(name)
	a.declared.Namespace = namespace
	a.hub = side{shared.Hub, argocd.Named(namespace, a.declared.Name)}
	a.spoke = side{s.spoke, argocd.Named(namespace, a.declared.Name)}
	return a
}

// withArgoCD declares one that is where Argo CD is, on either side.
func (s *site) withArgoCD(name string) *twin {
	a := s.within(lab.Namespace, name)
	a.spoke = side{s.spoke, argocd.Named(s.name, a.declared.Name)}
	return a
}

// at is the same Application on another site's spoke.
func (a *twin) at(s *site) *twin {
	moved := *a
	moved.spoke = side{s.spoke, a.spoke.selection}
	return &moved
}

func (a *twin) instance() string { return a.declared.Namespace + "_" + a.declared.Name }

// owned waits until components are told whose an application is; nobody's if that is empty.
func (f *federation) owned(t *testing.T, instance, want string) (there string) {
	t.Helper()
	awaitDirectory(t, f.known, func() bool {
		var agent string
		agent, there, _ = f.known.Owner(instance)
		return agent == want
	})
	return there
}

func destined(name string) change { return spec(name, "destination", "name") }

func healthy(object *unstructured.Unstructured) {
	set(object, map[string]any{"health": map[string]any{"status": "Healthy"}}, "status")
}

func TestDestinationMappingKeepsNamespace(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	s := f.newSite(t, "staying", lab.AgentOptions{})
	red, blue := f.team(t, "red", s), f.team(t, "blue", s)
	apps := []*twin{s.within(red, "shop"), s.within(blue, "shop"), s.withArgoCD("shop")}
	apps[1].declared.Name = apps[0].declared.Name
	apps[1].hub.selection.Name, apps[1].spoke.selection.Name = apps[0].declared.Name, apps[0].declared.Name
	for i, app := range apps {
		app.create(t, label("number", fmt.Sprint(i)))
	}
	for i, app := range apps {
		app.arrives(t, labelled("number", fmt.Sprint(i)), has("in-cluster", "spec", "destination", "name"))
		app.spoke.edit(t, healthy)
		app.hub.becomes(t, has("Healthy", "status", "health", "status"), has(s.name, "spec", "destination", "name"))
	}
	require.Equal(t, apps[0].instance(), f.owned(t, apps[0].instance(), s.name))
	require.Equal(t, apps[2].declared.Name, f.owned(t, apps[2].declared.Name, s.name))

	apps[0].spoke.edit(t, label("number", "mine"))
	apps[0].spoke.becomes(t, labelled("number", "0"))
	old := apps[1].spoke.get(t).GetUID()
	apps[1].spoke.delete(t)
	apps[1].arrives(t, func(object *unstructured.Unstructured) bool { return object.GetUID() != old })
	apps[0].hub.delete(t)
	apps[0].spoke.vanishes(t)
	f.owned(t, apps[0].instance(), "")
	apps[1].spoke.get(t)

	apps[1].hub.edit(t, label(ignored, "true"))
	f.owned(t, apps[1].instance(), "")
	apps[1].hub.edit(t, label(ignored, ""))
	f.owned(t, apps[1].instance(), s.name)
	apps[1].arrives(t)
}

func TestCreateNamespaceOnSpoke(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	may := f.newSite(t, "creating", lab.AgentOptions{Args: []string{"--create-namespace=true"}})
	mayNot := f.newSite(t, "not-creating", lab.AgentOptions{Spoke: "a", Args: []string{"--compare-interval=2s"}})
	team := f.team(t, "new")

	may.within(team, "shop").create(t).arrives(t)
	core(may.spoke, "namespaces", "", team).get(t)

	app := mayNot.within(team, "shop").create(t)
	app.hub.becomes(t, refused(`there is no namespace "`+team+`"`, "create it on the spoke", "--create-namespace"))
	require.NoError(t, mayNot.spoke.Apply(t.Context(), namespace(team)))
	app.arrives(t)
	app.hub.becomes(t, accepted)
}

func TestDisallowedSpokeNamespaceShowsCondition(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	s := f.newSiteFor(t, "choosy", f.teams+"-r*", lab.AgentOptions{})
	red, blue := f.team(t, "red", s), f.team(t, "blue", s)
	app := s.within(blue, "shop").create(t)
	app.hub.becomes(t, refused(`may not manage applications in namespace "`+blue+`"`, "add it to the agent's --allowed-namespaces"))
	s.within(red, "shop").create(t).arrives(t)
	expectGone(t, app.spoke.cluster, app.spoke.selection)

	// Nothing keeps it from being deleted.
	app.hub.edit(t, finalize(cascadeFinalizer))
	app.hub.delete(t)
	app.hub.vanishes(t)

	// One that is there already, and is none of the agent's business, is left alone.
	other := s.within(blue, "neighbour")
	create(t, other.spoke.cluster, other.spoke.selection, argocd.New(other.declared))
	before := other.spoke.get(t)
	other.create(t)
	other.hub.becomes(t, refused("--allowed-namespaces"))
	require.Equal(t, before.GetResourceVersion(), other.spoke.get(t).GetResourceVersion())
}

// Where the spoke's Argo CD is, only that of the hub's Argo CD can be: else two Applications would be one.
func TestHubNamespaceNamedLikeSpokesArgoCDNamespace(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	own := f.team(t, "own")
	s := f.newSite(t, "taken", lab.AgentOptions{Args: []string{"--namespace=" + own}})
	app := s.within(own, "shop").create(t)
	app.hub.becomes(t, refused(`namespace "`+own+`" is Argo CD's own on the spoke, and not on the hub`))
	expectGone(t, app.spoke.cluster, app.spoke.selection)
}

func TestDisallowedHubNamespaceIsLoggedOnce(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	private := unique("private")
	s := f.newSite(t, "eager", lab.AgentOptions{Args: []string{"--allowed-namespaces=" + private}})
	for _, c := range []*lab.Cluster{shared.Hub, s.spoke} {
		require.NoError(t, c.Apply(t.Context(), namespace(private)))
	}
	var apps []*twin
	for range 3 {
		apps = append(apps, s.within(private, "shop").create(t))
	}
	says(t, f.principal, "Ignored Applications in a namespace that is not allowed; add it to --allowed-namespaces", private, s.name)
	apps[0].hub.edit(t, label("again", "please"))
	s.within(f.team(t, "red", s), "shop").create(t).arrives(t)
	for _, app := range apps {
		expectGone(t, app.spoke.cluster, app.spoke.selection)
		f.owned(t, app.instance(), "")
		require.True(t, accepted(app.hub.get(t)), "it may be that of another controller")
	}
	log, err := os.ReadFile(f.principal.LogPath())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "namespace="+private))
}

func TestApplicationMovesToAnotherAgent(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	from, to := f.newSite(t, "from", lab.AgentOptions{}), f.newSite(t, "to", lab.AgentOptions{Spoke: "a"})
	team := f.team(t, "nomads", from, to)
	app := from.within(team, "shop").create(t, finalize(cascadeFinalizer))
	app.arrives(t)
	app.spoke.edit(t, healthy)
	app.hub.becomes(t, has("Healthy", "status", "health", "status"))
	f.owned(t, app.instance(), from.name)

	// Nobody here would do what the finalizer asks for: the copy would stay forever if it still had that.
	app.hub.edit(t, destined(to.name))
	app.spoke.vanishes(t)
	moved := app.at(to)
	moved.arrives(t, finalized(cascadeFinalizer), absent("status"))
	f.owned(t, app.instance(), to.name)
	app.hub.becomes(t, has("", "status", "health", "status")) // what the old spoke said of it holds no longer
	moved.spoke.edit(t, func(object *unstructured.Unstructured) {
		set(object, map[string]any{"health": map[string]any{"status": "Progressing"}}, "status")
	})
	app.hub.becomes(t, has("Progressing", "status", "health", "status"))

	// And back, while one of them is away.
	stopped(t, to.agent.Stop)
	app.hub.edit(t, destined(from.name))
	app.arrives(t)
	moved.spoke.get(t)
	start(t, to.agent.Start)
	moved.spoke.vanishes(t)
	app.hub.becomes(t, finalized(cascadeFinalizer), has(from.name, "spec", "destination", "name"))

	app.hub.edit(t, finalize())
}

// reportedBy has an agent's Application say on its spoke that it runs an operation of its own, and has run one before.
func reportedBy(agent string) change {
	return func(object *unstructured.Unstructured) {
		source := map[string]any{"repoURL": "https://" + agent + ".example.com", "path": "evil"}
		operation := map[string]any{
			"sync": map[string]any{"manifests": []any{"evil"}, "source": source, "prune": true},
			"info": []any{map[string]any{"name": "Reason", "value": agent}},
		}
		set(object, operation, "operation")
		set(object, map[string]any{
			"history": []any{map[string]any{"id": int64(0), "deployedAt": "2030-01-01T00:00:00Z", "revision": "abc", "source": source}},
			"operationState": map[string]any{
				"phase": "Running", "startedAt": "2030-01-01T00:00:00Z", "operation": operation, "syncResult": map[string]any{"revision": "abc", "source": source},
			},
		}, "status")
	}
}

// What an agent reports of its operations the hub shows, so that no controller could run it; and none of it stays when the
// Application is another's, whose spoke a rollback would deploy it on.
func TestReportedOperationsLeaveWithTheAgent(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	from, to := f.newSite(t, "teller", lab.AgentOptions{}), f.newSite(t, "next", lab.AgentOptions{Spoke: "a"})
	stopped(t, to.agent.Stop)
	unreported := func(object *unstructured.Unstructured) bool {
		return absent("operation")(object) && absent("status", "operationState")(object) && absent("status", "history")(object)
	}
	for name, leaves := range map[string]change{
		"to another agent": destined(to.name), "to a controller of the hub's": destined("in-cluster"), "unshared": label(ownPrefix+"ignore-sync", "true"),
	} {
		app := from.within(f.team(t, "told", from, to), "shop").create(t)
		app.arrives(t)
		app.spoke.edit(t, reportedBy(from.name))
		shown := app.hub.becomes(t, phase("Running"), has("", "operation", "sync", "source", "path"), func(object *unstructured.Unstructured) bool {
			return object.Object["operation"] != nil
		})
		require.True(t, absent("operation", "sync")(shown) && absent("status", "operationState", "operation", "sync")(shown), describe(shown))
		app.hub.edit(t, leaves)
		require.True(t, unreported(app.hub.becomes(t, unreported)), name)
	}
}

// A principal that was not there when the Application moved finds what is left.
func TestReportedOperationsLeaveAfterARestart(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	from, to := f.newSite(t, "left", lab.AgentOptions{}), f.newSite(t, "later", lab.AgentOptions{Spoke: "a"})
	stopped(t, to.agent.Stop)
	app := from.within(f.team(t, "slow", from, to), "shop").create(t)
	app.arrives(t)
	app.spoke.edit(t, reportedBy(from.name))
	app.hub.becomes(t, phase("Running"))
	stopped(t, f.principal.Stop)
	app.hub.edit(t, destined(to.name))
	app.hub.becomes(t, phase("Running"))
	start(t, f.principal.Start)
	app.hub.becomes(t, absent("operation"), absent("status", "operationState"), absent("status", "history"))
}

// What was asked for before an Application moved, and was not begun, is done where it is now.
func TestPendingSyncMovesWithApplication(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	from, to := f.newSite(t, "asked", lab.AgentOptions{}), f.newSite(t, "doing", lab.AgentOptions{Spoke: "a"})
	app := from.within(f.team(t, "busy", from, to), "shop").create(t)
	app.arrives(t)
	stopped(t, from.agent.Stop)
	app.hub.edit(t, func(object *unstructured.Unstructured) {
		set(object, map[string]any{"sync": map[string]any{"revision": "wanted"}}, "operation")
	})
	app.hub.edit(t, destined(to.name))
	app.at(to).spoke.becomes(t, has("wanted", "operation", "sync", "revision"))
	start(t, from.agent.Start)
	app.spoke.vanishes(t)
	app.at(to).spoke.becomes(t, has("wanted", "operation", "sync", "revision"))
}

// In a hybrid installation it may be a cluster of the hub's own Argo CD.
func TestDestinationWithoutAgentIsIgnored(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	s := f.newSite(t, "somebody", lab.AgentOptions{})
	team, nobody := f.team(t, "hybrid", s), unique("nobody")
	app := s.within(team, "shop").create(t, destined(nobody))
	says(t, f.principal, "Ignored Applications whose destination is no agent", nobody)
	foreign := app.hub.get(t)
	f.owned(t, app.instance(), "")
	app.hub.edit(t, destined(s.name))
	app.arrives(t)
	for _, elsewhere := range []string{nobody, "in-cluster"} {
		app.hub.edit(t, destined(elsewhere))
		app.spoke.vanishes(t)
		f.owned(t, app.instance(), "")
		app.hub.edit(t, destined(s.name))
		app.arrives(t)
	}
	require.Equal(t, foreign.GetUID(), app.hub.get(t).GetUID())

	// It may become an agent.
	app.hub.edit(t, destined(nobody))
	app.spoke.vanishes(t)
	require.NoError(t, shared.RegisterAgent(t.Context(), nobody))
	f.owned(t, app.instance(), nobody)
	now := startSite(t, nobody, lab.AgentOptions{Spoke: "a", Principal: f.principal, Args: []string{
		byDestination, "--allowed-namespaces=" + team, "--create-namespace=true",
	}})
	app.at(now).arrives(t)
}

func TestMappingOrSelectorMismatchIsRejected(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{byDestination}})
	namespaced := newSite(t, "namespaced", lab.AgentOptions{Principal: principal})
	says(t, namespaced.agent, `mapping: the agent maps applications by \"namespace\", the principal by \"destination\": `+
		"set --destination-based-mapping on both or on neither")
	destined := newSite(t, "destined", lab.AgentOptions{Args: []string{byDestination}})
	says(t, destined.agent, `mapping: the agent maps applications by \"destination\", the principal by \"namespace\"`)
	requireNotReady(t, destined.agent.HealthURL, "connection: not ready", "--destination-based-mapping")
	selecting := newSite(t, "selecting-alone", lab.AgentOptions{Args: []string{"--label-selector=share=yes"}})
	says(t, selecting.agent, "label selector: the agent's is ", "set --label-selector to the same on both")
	requireNotReady(t, selecting.agent.HealthURL, "connection: not ready", "--label-selector")
}

// What is defined on a spoke is in the namespace of its agent's name, whatever the mapping of all others.
func TestAutonomousAgentWithDestinationMapping(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	s, app := newAutonomous(t, "own-way", lab.AgentOptions{Principal: f.principal, Args: []string{byDestination}}, label("team", "blue"))
	app.shown(t, labelled("team", ""), has(s.name, "spec", "destination", "name"))
	require.Equal(t, app.declared.Name, f.owned(t, app.instance(), s.name))
	app.hub.edit(t, label("team", "red"))
	app.shown(t, labelled("team", ""))
	app.hub.edit(t, destined("elsewhere"))
	app.shown(t, has(s.name, "spec", "destination", "name"))
	app.hub.delete(t)
	app.shown(t)
	app.spoke.edit(t, healthy)
	app.hub.becomes(t, has("Healthy", "status", "health", "status"))
}
