package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// guarded is an Application with something of everything in it.
func guarded(t *testing.T, s *site, name string) *twin {
	t.Helper()
	app := s.newTwin(name).create(t, label("team", "blue"), annotate("example.com/note", "hello"), finalize(cascadeFinalizer))
	app.arrives(t)
	return app
}

// meddling is what people do on a spoke that is not theirs to do there.
func meddling() map[string]change {
	return map[string]change{
		"spec":                spec("elsewhere", "source", "path"),
		"spec-more":           spec(int64(7), "revisionHistoryLimit"),
		"destination":         spec("elsewhere", "destination", "namespace"),
		"label":               label("team", "red"),
		"label-more":          label("mine", "yes"),
		"label-less":          label("team", ""),
		"annotation":          annotate("example.com/note", "bye"),
		"annotation-more":     annotate("example.com/mine", "yes"),
		"annotation-less":     annotate("example.com/note", ""),
		"no-annotations":      func(object *unstructured.Unstructured) { object.SetAnnotations(nil) },
		"another-source":      annotate(sourceUID, "somebody-else"),
		"finalizer-less":      finalize(),
		"finalizer-different": finalize(cascade),
	}
}

// asCreated holds for a spoke's copy of a guarded Application.
func asCreated(app *twin, uid string) condition {
	return func(object *unstructured.Unstructured) bool {
		limit, _, _ := unstructured.NestedInt64(object.Object, "spec", "revisionHistoryLimit")
		return has(lab.ConfigPath, "spec", "source", "path")(object) && limit == 0 &&
			has(app.declared.Into, "spec", "destination", "namespace")(object) &&
			len(object.GetLabels()) == 1 && labelled("team", "blue")(object) &&
			annotated("example.com/note", "hello")(object) && annotated("example.com/mine", "")(object) &&
			annotated(sourceUID, uid)(object) && finalized(cascadeFinalizer)(object) && !beingDeleted(object)
	}
}

// meddle does all that, each with an Application of its own, and expects it to be undone. meanwhile is called between.
func meddle(t *testing.T, apps map[string]*twin, uids map[string]string, meanwhile func()) {
	t.Helper()
	for name, change := range meddling() {
		apps[name].spoke.edit(t, change)
	}
	meanwhile()
	for name := range meddling() {
		t.Run(name, func(t *testing.T) { apps[name].spoke.becomes(t, asCreated(apps[name], uids[name])) })
	}
}

// remove deletes an Application on the spoke, past its finalizer, and expects another in its place.
func remove(t *testing.T, app *twin, uid string, meanwhile func()) {
	t.Helper()
	old := app.spoke.get(t).GetUID()
	app.spoke.delete(t)
	app.spoke.edit(t, finalize())
	meanwhile()
	app.spoke.becomes(t, asCreated(app, uid), func(object *unstructured.Unstructured) bool { return object.GetUID() != old })
}

func guardedAll(t *testing.T, s *site) (apps map[string]*twin, uids map[string]string) {
	t.Helper()
	apps, uids = make(map[string]*twin), make(map[string]string)
	names := []string{"deleted"}
	for name := range meddling() {
		names = append(names, name)
	}
	for _, name := range names {
		apps[name] = guarded(t, s, name)
		uids[name] = string(apps[name].hub.get(t).GetUID())
		// Nothing works off the finalizers here.
		t.Cleanup(func() { apps[name].hub.edit(t, finalize()) })
	}
	return apps, uids
}

func TestLocalChangesOnSpokeAreReverted(t *testing.T) {
	t.Parallel()
	nothing := func() {}
	t.Run("connected", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "guarded-connected", lab.AgentOptions{}).connected(t)
		apps, uids := guardedAll(t, s)
		meddle(t, apps, uids, nothing)
		remove(t, apps["deleted"], uids["deleted"], nothing)
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "guarded-cut", lab.AgentOptions{}).connected(t)
		apps, uids := guardedAll(t, s)
		s.agent.Principal.Cut()
		defer s.agent.Principal.Restore()
		meddle(t, apps, uids, nothing)
		remove(t, apps["deleted"], uids["deleted"], nothing)
	})
	t.Run("while the agent was down", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "guarded-down", lab.AgentOptions{}).connected(t)
		apps, uids := guardedAll(t, s)
		stopped(t, s.agent.Stop)
		remove(t, apps["deleted"], uids["deleted"], func() {
			meddle(t, apps, uids, func() { start(t, s.agent.Start) })
		})
	})
	t.Run("by an agent that has not reached the hub yet", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "guarded-alone", lab.AgentOptions{}).connected(t)
		apps, uids := guardedAll(t, s)
		stopped(t, s.agent.Stop)
		s.agent.Principal.Refuse()
		start(t, s.agent.Start)
		says(t, s.agent, "Connection to principal failed; retrying")
		meddle(t, apps, uids, nothing)
		remove(t, apps["deleted"], uids["deleted"], nothing)
		s.agent.Principal.Restore()
		s.connected(t)
	})
}

// What the hub wants may change while the spoke cannot hear of it: then it is that which is to be there in the end.
func TestBothSidesChangeWhileDisconnected(t *testing.T) {
	t.Parallel()
	s := newSite(t, "divided", lab.AgentOptions{}).connected(t)
	app := guarded(t, s, "divided")
	t.Cleanup(func() { app.hub.edit(t, finalize()) })
	s.agent.Principal.Refuse()
	app.hub.edit(t, label("team", "green"))
	app.spoke.edit(t, label("team", "red"))
	app.spoke.becomes(t, labelled("team", "blue"))
	s.agent.Principal.Restore()
	app.spoke.becomes(t, labelled("team", "green"))
}

// The application controller stores the spec when it begins an automated sync, and leaves out what is zero.
func TestAutomatedSyncOfSpecWithZeroFieldsIsNoDrift(t *testing.T) {
	t.Parallel()
	agent := shared.Agent("a")
	mark := agent.Mark()
	app := newTwin("a", "zero-fields").automated().create(t,
		spec(map[string]any{"recurse": false, "include": "*.yaml"}, "source", "directory"), spec([]any{}, "sources"), spec([]any{}, "info"),
		spec(map[string]any{"limit": int64(0), "refresh": false}, "syncPolicy", "retry"))
	app.arrives(t)
	app.spoke.becomes(t, syncedAndHealthy)
	app.configMap().becomes(t)

	app.spoke.edit(t, spec(false, "source", "directory", "recurse"))
	app.hub.edit(t, spec("*.y*ml", "source", "directory", "include"))
	app.spoke.becomes(t, has("*.y*ml", "spec", "source", "directory", "include"), syncedAndHealthy)

	app.spoke.edit(t, label("mine", "yes")) // this is drift, and puts an end to waiting for some
	app.spoke.becomes(t, labelled("mine", ""))
	text, err := agent.LogFrom(mark)
	require.NoError(t, err)
	repairs := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "Restored drifted replica object") && strings.Contains(line, app.declared.Name) {
			repairs++
		}
	}
	require.LessOrEqual(t, repairs, 1, "the label's, which is logged after it was put back: %s", text)
}
