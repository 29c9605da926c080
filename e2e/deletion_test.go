package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deployed creates an Application that deploys a ConfigMap, and waits until it did.
func deployed(t *testing.T, app *twin, changes ...change) *twin {
	t.Helper()
	app.automated().create(t, changes...)
	app.hub.becomes(t, syncedAndHealthy)
	app.configMap().becomes(t)
	return app
}

// kept fails if what the Application deployed is gone, or about to go.
func kept(t *testing.T, app *twin) {
	t.Helper()
	require.Nil(t, app.configMap().get(t).GetDeletionTimestamp())
}

func TestDeleteWithoutFinalizerKeepsResources(t *testing.T) {
	t.Parallel()
	app := deployed(t, newTwin("a", "leaving"))
	app.hub.delete(t)
	app.hub.vanishes(t)
	app.spoke.vanishes(t)
	kept(t, app)
}

func TestDeleteWithFinalizerPrunesResources(t *testing.T) {
	t.Parallel()
	for name, finalizer := range map[string]string{"foreground": cascadeFinalizer, "background": cascade} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := deployed(t, newTwin("a", "pruned-"+name), finalize(finalizer))
			app.hub.delete(t)
			app.hub.vanishes(t)
			app.spoke.vanishes(t)
			app.configMap().vanishes(t)
		})
	}
}

// The hub's Application is not gone before the spoke's: until then somebody may have to look why it does not go.
func TestHubApplicationWaitsForCascadingDelete(t *testing.T) {
	t.Parallel()
	app := deployed(t, newTwin("a", "held"), finalize(cascadeFinalizer))
	app.configMap().edit(t, finalize("example.com/not-yet"))
	app.hub.delete(t)
	app.configMap().becomes(t, beingDeleted)
	app.spoke.becomes(t, beingDeleted)
	app.hub.becomes(t, beingDeleted)

	app.configMap().edit(t, finalize())
	app.spoke.vanishes(t)
	app.hub.vanishes(t)
}

func beingDeleted(object *unstructured.Unstructured) bool {
	return object.GetDeletionTimestamp() != nil
}

func TestDeleteThroughArgoCDServer(t *testing.T) {
	t.Parallel()
	t.Run("cascading", func(t *testing.T) {
		t.Parallel()
		app := deployed(t, newTwin("b", "clicked-away"))
		ask(t, http.MethodDelete, app, "", "&cascade=true", nil)
		app.hub.vanishes(t)
		app.spoke.vanishes(t)
		app.configMap().vanishes(t)
	})
	t.Run("not cascading", func(t *testing.T) {
		t.Parallel()
		app := deployed(t, newTwin("b", "orphaning"), finalize(cascadeFinalizer))
		ask(t, http.MethodDelete, app, "", "&cascade=false", nil)
		app.hub.vanishes(t)
		app.spoke.vanishes(t)
		kept(t, app)
	})
}

// Somebody takes the finalizer away while it holds the hub's Application: then the resources are to stay.
func TestRemovingFinalizerCancelsCascadingDelete(t *testing.T) {
	app := deployed(t, newTwin("b", "called-off"), finalize(cascadeFinalizer))
	newTwin("b", "besides").create(t).arrives(t) // the deletion guard would hold the only one
	disconnect(t, "b")
	app.hub.delete(t)
	app.hub.becomes(t, beingDeleted)
	app.hub.edit(t, finalize())
	app.hub.vanishes(t)
	reconnect(t, "b")
	app.spoke.vanishes(t)
	kept(t, app)
}

func TestDeletesAreAppliedAfterReconnect(t *testing.T) {
	cascading := deployed(t, newTwin("b", "gone-meanwhile"), finalize(cascadeFinalizer))
	orphaning := deployed(t, newTwin("b", "left-meanwhile"))
	disconnect(t, "b")
	cascading.hub.delete(t)
	orphaning.hub.delete(t)
	cascading.hub.becomes(t, beingDeleted)
	orphaning.hub.vanishes(t)
	require.Nil(t, cascading.spoke.get(t).GetDeletionTimestamp())
	require.Nil(t, orphaning.spoke.get(t).GetDeletionTimestamp())

	reconnect(t, "b")
	cascading.spoke.vanishes(t)
	cascading.configMap().vanishes(t)
	cascading.hub.vanishes(t)
	orphaning.spoke.vanishes(t)
	kept(t, orphaning)
}

// argocd-server adds the finalizer, or another one, and then deletes. A spoke that was away hears of both at once. The
// application controller goes by the first.
func TestCascadingDeleteWhileDisconnected(t *testing.T) {
	cases := map[string]struct {
		before []string
		query  string
		after  []string
	}{
		"added":            {nil, "&cascade=true", []string{cascadeFinalizer}},
		"added-background": {nil, "&cascade=true&propagationPolicy=background", []string{cascade}},
		"to-background":    {[]string{cascadeFinalizer}, "&cascade=true&propagationPolicy=background", []string{cascadeFinalizer, cascade}},
		"from-background":  {[]string{cascade}, "&cascade=true", []string{cascade, cascadeFinalizer}},
	}
	apps := make(map[string]*twin)
	for name, c := range cases {
		apps[name] = deployed(t, newTwin("b", name), finalize(c.before...))
		apps[name].configMap().edit(t, finalize("example.com/not-yet"))
	}
	disconnect(t, "b")
	for name, c := range cases {
		ask(t, http.MethodDelete, apps[name], "", c.query, nil)
		apps[name].hub.becomes(t, beingDeleted, finalized(c.after...))
		require.True(t, finalized(c.before...)(apps[name].spoke.get(t)))
	}
	reconnect(t, "b")
	for name, c := range cases {
		apps[name].configMap().becomes(t, beingDeleted)
		apps[name].spoke.becomes(t, beingDeleted, finalized(c.after...))
		apps[name].configMap().edit(t, finalize())
		apps[name].configMap().vanishes(t)
		apps[name].spoke.vanishes(t)
		apps[name].hub.vanishes(t)
	}
}

// One that is deleted and created again is another one, even by the same name: but what it deploys is not touched.
func TestApplicationRecreatedUnderSameName(t *testing.T) {
	replace := func(t *testing.T, app *twin, outage func(), over func()) {
		t.Helper()
		deployed(t, app)
		old := app.hub.get(t).GetUID()
		configMap := app.configMap().get(t).GetUID()
		outage()
		app.hub.delete(t)
		app.hub.vanishes(t)
		app.create(t, label("generation", "second"))
		over()
		app.arrives(t, labelled("generation", "second"))
		app.hub.becomes(t, syncedAndHealthy)
		require.NotEqual(t, old, app.hub.get(t).GetUID())
		require.Equal(t, configMap, app.configMap().get(t).GetUID())
	}
	t.Run("connected", func(t *testing.T) {
		replace(t, newTwin("b", "replaced"), func() {}, func() {})
	})
	t.Run("disconnected", func(t *testing.T) {
		replace(t, newTwin("b", "replaced-meanwhile"), func() { disconnect(t, "b") }, func() { reconnect(t, "b") })
	})
}
