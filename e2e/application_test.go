package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

const (
	refreshAnnotation  = "argocd.argoproj.io/refresh"
	notifiedAnnotation = "notified.notifications.argoproj.io"
	cascadeFinalizer   = "resources-finalizer.argocd.argoproj.io"
)

func TestApplicationIsCopiedToSpoke(t *testing.T) {
	t.Parallel()
	app := newTwin("a", "complete").automated().create(t,
		label("team", "blue"), annotate("example.com/note", "hello"), finalize(cascadeFinalizer, "example.com/the-hubs-own"),
		spec("https://anywhere.example.com", "destination", "server"), spec(int64(3), "revisionHistoryLimit"),
		func(object *unstructured.Unstructured) {
			unstructured.RemoveNestedField(object.Object, "spec", "destination", "name")
			object.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "fleet", "uid": "7d0a9d1c",
			}}
		})
	t.Cleanup(func() { app.hub.edit(t, finalize()) }) // nobody else works that finalizer off

	replica := app.arrives(t)
	require.Equal(t, map[string]string{"team": "blue"}, replica.GetLabels())
	require.Equal(t, "hello", replica.GetAnnotations()["example.com/note"])
	require.Equal(t, []string{cascadeFinalizer}, replica.GetFinalizers(), "finalizers of others than Argo CD stay on the hub")
	require.Empty(t, replica.GetOwnerReferences(), "the owner is on the hub only")
	require.Equal(t, map[string]any{"name": "in-cluster", "namespace": "complete"}, replica.Object["spec"].(map[string]any)["destination"])
	limit, _, err := unstructured.NestedInt64(replica.Object, "spec", "revisionHistoryLimit")
	require.NoError(t, err)
	require.EqualValues(t, 3, limit)

	app.spoke.becomes(t, syncedAndHealthy)
	app.configMap().becomes(t)
	there := app.hub.becomes(t, syncedAndHealthy)
	require.Equal(t, "https://anywhere.example.com", text(there, "spec", "destination", "server"), "the hub's own is left alone")
	require.NotEmpty(t, there.GetOwnerReferences())
}

func syncedAndHealthy(object *unstructured.Unstructured) bool { return argocd.SyncedAndHealthy(object) }

func TestApplicationEditOnHubReachesSpoke(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, edit change
		after        condition
	}{
		"spec": {
			before: spec("main", "source", "targetRevision"), edit: spec("other", "source", "targetRevision"),
			after: has("other", "spec", "source", "targetRevision"),
		},
		"spec-less": {
			before: spec("note", "source", "ref"), edit: func(object *unstructured.Unstructured) {
				unstructured.RemoveNestedField(object.Object, "spec", "source", "ref")
			},
			after: has("", "spec", "source", "ref"),
		},
		"destination": {
			before: spec("here", "destination", "namespace"), edit: spec("there", "destination", "namespace"),
			after: has("there", "spec", "destination", "namespace"),
		},
		"label":            {before: label("team", "blue"), edit: label("team", "red"), after: labelled("team", "red")},
		"label-more":       {before: label("team", "blue"), edit: label("tier", "1"), after: labelled("tier", "1")},
		"label-less":       {before: label("team", "blue"), edit: label("team", ""), after: labelled("team", "")},
		"annotation":       {before: annotate("n", "1"), edit: annotate("n", "2"), after: annotated("n", "2")},
		"annotation-less":  {before: annotate("n", "1"), edit: annotate("n", ""), after: annotated("n", "")},
		"finalizer":        {before: finalize(), edit: finalize(cascadeFinalizer), after: finalized(cascadeFinalizer)},
		"finalizer-less":   {before: finalize(cascadeFinalizer), edit: finalize(), after: finalized()},
		"finalizer-change": {before: finalize(cascadeFinalizer), edit: finalize(cascade), after: finalized(cascade)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newTwin("b", "edited-"+name).create(t, c.before)
			require.False(t, c.after(app.arrives(t)))
			app.hub.edit(t, c.edit)
			app.spoke.becomes(t, c.after)
			app.hub.edit(t, c.before)
			app.spoke.becomes(t, func(object *unstructured.Unstructured) bool { return name == "label-more" || !c.after(object) })
		})
	}
}

// Notifications are sent by each side by itself, and each side is refreshed by itself.
func TestLocalAnnotationsAreNotSynchronised(t *testing.T) {
	t.Parallel()
	s := newSite(t, "annotations", lab.AgentOptions{}).connected(t) // no controller here takes the spoke's refresh away
	app := s.newTwin("annotated").create(t, annotate(notifiedAnnotation, "by the hub"))
	require.NotContains(t, app.arrives(t).GetAnnotations(), notifiedAnnotation)

	app.spoke.edit(t, annotate(notifiedAnnotation, "by the spoke"))
	app.spoke.edit(t, annotate(refreshAnnotation, "normal"))
	app.hub.edit(t, annotate("example.com/note", "for both"))

	app.spoke.becomes(t, annotated("example.com/note", "for both"),
		annotated(notifiedAnnotation, "by the spoke"), annotated(refreshAnnotation, "normal"))
	there := app.hub.get(t)
	require.Equal(t, "by the hub", there.GetAnnotations()[notifiedAnnotation])
	require.NotContains(t, there.GetAnnotations(), refreshAnnotation)
	require.NotContains(t, there.GetAnnotations(), sourceUID)
}

func TestExistingSpokeApplicationIsAdopted(t *testing.T) {
	t.Parallel()
	app := newTwin("b", "adopted")
	old := app.declared
	old.Namespace, old.Destination = "argocd", ""
	create(t, app.spoke.cluster, app.spoke.selection, argocd.New(old))
	app.spoke.edit(t, label("team", "spoke"))

	app.create(t, label("team", "hub"))
	app.arrives(t, labelled("team", "hub"))
}

func TestUnmanagedSpokeApplicationsAreNotTouched(t *testing.T) {
	t.Parallel()
	s := newSite(t, "neighbours", lab.AgentOptions{}).connected(t)
	own := s.newTwin("own")
	local := own.declared
	local.Destination = ""
	create(t, own.spoke.cluster, own.spoke.selection, argocd.New(local))
	app := s.newTwin("from-the-hub").create(t)
	app.arrives(t)

	app.hub.delete(t)
	app.spoke.vanishes(t)
	require.NotContains(t, own.spoke.get(t).GetAnnotations(), sourceUID)
	object, err := own.hub.cluster.Get(t.Context(), own.hub.selection)
	require.NoError(t, err)
	require.Nil(t, object, "what is the spoke's own does not get to the hub")
}

// Nothing of an agent is shown to, or can be had by, another one.
func TestAgentsOnlyReceiveTheirOwnApplications(t *testing.T) {
	t.Parallel()
	a := newTwin("a", "namesake").create(t, label("for", "a"))
	b := newTwin("b", "namesake").create(t, label("for", "b"))
	a.arrives(t, labelled("for", "a"))
	b.arrives(t, labelled("for", "b"))

	a.hub.delete(t)
	a.spoke.vanishes(t)
	require.Equal(t, "b", b.spoke.get(t).GetLabels()["for"])
}
