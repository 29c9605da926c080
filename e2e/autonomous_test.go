package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// newAutonomous makes a site whose applications are defined on its spoke, and one of those.
func newAutonomous(t *testing.T, name string, options lab.AgentOptions, changes ...change) (*site, *twin) {
	t.Helper()
	options.Mode = "autonomous"
	s := newSite(t, name, options)
	return s, s.newOwn("guestbook").createOnSpoke(t, changes...)
}

// newOwn declares an Application of the site's own.
func (s *site) newOwn(name string) *twin {
	a := s.newTwin(name)
	a.declared.Namespace, a.declared.Destination = s.name, "in-cluster"
	return a
}

// ownOf declares an Application of an autonomous agent's own, in a lab of a test's own.
func ownOf(l *lab.Lab, agent, name, path, into string) *twin {
	return &twin{
		hub: side{l.Hub, argocd.Named(agent, name)}, spoke: side{l.Spoke(agent), argocd.Named(lab.Namespace, name)},
		declared: argocd.Application{
			Namespace: agent, Name: name, RepoURL: l.Git.URL, Path: path, Destination: "in-cluster", Into: into, Manual: true,
		},
	}
}

// createOnSpoke creates the Application on the spoke, and deletes it when the test is over.
func (a *twin) createOnSpoke(t *testing.T, changes ...change) *twin {
	t.Helper()
	return a.createOn(t, a.spoke, changes...)
}

// shown waits until the hub shows the Application of this very object on the spoke.
func (a *twin) shown(t *testing.T, conditions ...condition) *unstructured.Unstructured {
	t.Helper()
	uid := string(a.spoke.get(t).GetUID())
	return a.hub.becomes(t, append(conditions, annotated(sourceUID, uid))...)
}

// sharing is, by mode, how an Application of a site gets to both sides.
func sharing() map[string]func(t *testing.T, s *site, name string, changes ...change) *twin {
	return map[string]func(*testing.T, *site, string, ...change) *twin{
		"managed": func(t *testing.T, s *site, name string, changes ...change) *twin {
			t.Helper()
			app := s.newTwin(name).create(t, changes...)
			app.arrives(t)
			return app
		},
		"autonomous": func(t *testing.T, s *site, name string, changes ...change) *twin {
			t.Helper()
			app := s.newOwn(name).createOnSpoke(t, changes...)
			app.shown(t)
			return app
		},
	}
}

func absent(path ...string) condition {
	return func(object *unstructured.Unstructured) bool {
		_, found, err := unstructured.NestedFieldNoCopy(object.Object, path...)
		return err == nil && !found
	}
}

func TestAutonomousApplicationsAreMirroredToHub(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--mirror-labels=team", "--mirror-annotations=*"}})
	const subscription = "notifications.argoproj.io/subscribe.on-sync-failed.slack"
	s, app := newAutonomous(t, "autonomous", lab.AgentOptions{Principal: principal}, label("team", "blue"), label("secret", "x"),
		annotate("example.com/owner", "me"), annotate(subscription, "x"), finalize(cascadeFinalizer))
	app.shown(t, labelled("team", "blue"), annotated("example.com/owner", "me"), annotated(subscription, ""), finalized(),
		func(object *unstructured.Unstructured) bool { return len(object.GetLabels()) == 1 },
		has(s.name+"-default", "spec", "project"), has(s.name, "spec", "destination", "name"), absent("spec", "destination", "server"))

	app.spoke.edit(t, spec("v2", "source", "targetRevision"))
	app.shown(t, has("v2", "spec", "source", "targetRevision"))

	status := map[string]any{
		"health": map[string]any{"status": "Healthy"},
		"resources": []any{
			map[string]any{"group": "argoproj.io", "version": "v1alpha1", "kind": "Application", "namespace": s.name, "name": "child"},
			map[string]any{"group": "argoproj.io", "version": "v1alpha1", "kind": "Application", "namespace": "argocd", "name": "other"},
			map[string]any{"version": "v1", "kind": "ConfigMap", "namespace": "argocd", "name": "config"},
		},
	}
	app.spoke.edit(t, func(object *unstructured.Unstructured) { set(object, status, "status") })
	shown := app.shown(t, has("Healthy", "status", "health", "status"))
	var namespaces []string
	for _, r := range shown.Object["status"].(map[string]any)["resources"].([]any) {
		namespaces = append(namespaces, r.(map[string]any)["namespace"].(string))
	}
	require.Equal(t, []string{s.name, "argocd", "argocd"}, namespaces, "those that the hub does not show keep their names")

	app.spoke.edit(t, finalize())
	app.spoke.delete(t)
	app.hub.vanishes(t)
}

func TestEditsOfMirroredApplicationsAreReverted(t *testing.T) {
	t.Parallel()
	_, app := newAutonomous(t, "stubborn", lab.AgentOptions{})
	before := app.shown(t)
	app.hub.edit(t, spec("elsewhere", "source", "targetRevision"))
	app.shown(t, has(text(before, "spec", "source", "targetRevision"), "spec", "source", "targetRevision"))
	app.hub.edit(t, spec("in-cluster", "destination", "name"))
	app.shown(t, has(text(before, "spec", "destination", "name"), "spec", "destination", "name"))
	app.hub.edit(t, annotate("example.com/mine", "yes"))
	app.shown(t, func(object *unstructured.Unstructured) bool { return object.GetAnnotations()["example.com/mine"] == "" })

	another := func(old *unstructured.Unstructured) condition {
		return func(object *unstructured.Unstructured) bool { return object.GetUID() != old.GetUID() }
	}
	old := app.hub.get(t)
	app.hub.delete(t)
	again := app.shown(t, another(old))
	app.hub.edit(t, finalize(cascadeFinalizer))
	app.hub.delete(t)
	app.shown(t, another(again), finalized())
	app.spoke.get(t)
}

func TestEditsOfMirroredApplicationsAreRevertedAfterRestart(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	_, app := newAutonomous(t, "restarted", lab.AgentOptions{Principal: principal})
	old := app.shown(t)
	stopped(t, principal.Stop)
	app.hub.edit(t, spec("elsewhere", "source", "targetRevision"))
	start(t, principal.Start)
	app.shown(t, has(text(old, "spec", "source", "targetRevision"), "spec", "source", "targetRevision"))
	stopped(t, principal.Stop)
	app.hub.edit(t, finalize(cascadeFinalizer))
	app.hub.delete(t)
	start(t, principal.Start)
	app.shown(t, finalized(), func(object *unstructured.Unstructured) bool { return object.GetDeletionTimestamp() == nil })
}

func TestSyncAndRefreshOfAutonomousApplicationFromHub(t *testing.T) {
	t.Parallel()
	_, app := newAutonomous(t, "asked", lab.AgentOptions{})
	app.shown(t)
	app.hub.edit(t, annotate("argocd.argoproj.io/refresh", "hard"))
	app.spoke.becomes(t, annotated("argocd.argoproj.io/refresh", "hard"))
	app.spoke.edit(t, func(object *unstructured.Unstructured) {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "argocd.argoproj.io/refresh")
	})
	app.hub.becomes(t, func(object *unstructured.Unstructured) bool {
		_, asked := object.GetAnnotations()["argocd.argoproj.io/refresh"]
		return !asked
	})

	app.hub.edit(t, func(object *unstructured.Unstructured) {
		set(object, map[string]any{"sync": map[string]any{"revision": "wanted"}}, "operation")
	})
	asked := app.spoke.becomes(t, has("wanted", "operation", "sync", "revision"))
	operation, err := json.Marshal(asked.Object["operation"])
	require.NoError(t, err)
	app.spoke.edit(t, func(object *unstructured.Unstructured) { // as its controller does
		var ran any
		require.NoError(t, json.Unmarshal(operation, &ran))
		delete(object.Object, "operation")
		set(object, map[string]any{
			"phase": "Succeeded", "startedAt": "2030-01-01T00:00:00Z", "finishedAt": "2030-01-01T00:00:01Z", "operation": ran,
		}, "status", "operationState")
	})
	app.hub.becomes(t, absent("operation"), has("Succeeded", "status", "operationState", "phase"))
}

// argocd-server asks for it by a phase in the status, which is else the spoke's.
func TestTerminateOperationOfAutonomousApplicationFromHub(t *testing.T) {
	t.Parallel()
	_, app := newAutonomous(t, "ended", lab.AgentOptions{})
	app.shown(t)
	app.spoke.edit(t, func(object *unstructured.Unstructured) {
		set(object, map[string]any{
			"phase": "Running", "startedAt": "2030-01-01T00:00:00Z", "operation": map[string]any{"sync": map[string]any{}},
		}, "status", "operationState")
	})
	app.hub.becomes(t, phase("Running"))
	app.hub.edit(t, func(object *unstructured.Unstructured) {
		set(object, "Terminating", "status", "operationState", "phase")
	})
	app.spoke.becomes(t, phase("Terminating"))
	app.spoke.edit(t, func(object *unstructured.Unstructured) { set(object, "Failed", "status", "operationState", "phase") })
	app.hub.becomes(t, phase("Failed"))
}
