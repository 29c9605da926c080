package facets_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// lie applies what the agent berlin sends of an application or project on the hub.
func (p *pair) lie(f converge.Facet, payload string) error {
	p.Helper()
	_, err := p.here.Replicas[f].Apply(p.Context(), "shop", converge.Object{
		State: converge.State{UID: "on-spoke", Version: converge.VersionOf([]byte(payload))}, Payload: []byte(payload),
	})
	return err
}

// What the hub shows of an agent's application has nothing that a program on the hub acts on, whatever the agent sends.
func TestMirrorHasNothingThatOthersActOn(t *testing.T) {
	t.Parallel()
	const marks = `{"argocd.argoproj.io/refresh":"hard","argocd.argoproj.io/principal-uid":"x","argocd-agent.argoproj-labs.io/intent":"x",
		"argocd-agent.argoproj-labs.io/agent":"paris","notifications.argoproj.io/subscribe.on-sync.slack":"x",
		"argocd-image-updater.argoproj.io/image-list":"x","example.com/a":"x","link.argocd.argoproj.io/doc":"https://x"}`
	const more = `"labels":` + marks + `,"annotations":` + marks + `,"finalizers":["resources-finalizer.argocd.argoproj.io","evil.example.com/stuck"],
		"ownerReferences":[{"uid":"x"}],"operation":{"sync":{}},"status":{"sync":{}},"metadata":{"finalizers":["x"]},"type":"x","data":{"a":"b"}`
	for facet, spec := range map[converge.Facet]string{
		facets.Application: `"spec":{"project":"own","destination":{"server":"https://elsewhere","name":"in-cluster","namespace":"x"}}`,
		facets.AppProject:  `"spec":{"destinations":[{"server":"*","name":"*","namespace":"*"}],"roles":[{"name":"r","groups":["g"]}]}`,
	} {
		p := newPair(t, facets.Autonomous)
		require.NoError(t, p.lie(facet, `{`+more+`,`+spec+`}`))
		var meta metav1.ObjectMeta
		if facet == facets.Application {
			app := p.hubAPI.get("shop")
			meta = app.ObjectMeta
			require.JSONEq(t, `{"project":"berlin-own","destination":{"name":"berlin","namespace":"x"}}`, string(app.Spec))
			require.Empty(t, app.Operation)
			require.Empty(t, app.Status)
		} else {
			project := p.hubAPI.object("AppProject", "berlin-shop")
			meta = project.ObjectMeta
			require.JSONEq(t, `{"destinations":[{"name":"berlin","namespace":"*"}],"sourceNamespaces":["berlin"]}`, string(project.Spec))
			require.Empty(t, project.Type)
			require.Empty(t, project.Data)
		}
		require.Empty(t, meta.Labels)
		require.Empty(t, meta.Finalizers)
		require.Empty(t, meta.OwnerReferences)
		var keys []string
		for key := range meta.Annotations {
			keys = append(keys, key)
		}
		require.ElementsMatch(t, []string{
			argocd.AnnotationSourceUID, argocd.AnnotationAgent, argocd.AnnotationApplied, argocd.AnnotationMirrorRules, "link.argocd.argoproj.io/doc",
		}, keys)
		require.Equal(t, "berlin", meta.Annotations[argocd.AnnotationAgent])
	}
}

// A deletion brings no finalizers to the hub: an autonomous agent's application is not deleted so.
func TestMirrorIsNotDeletedWithFinalizers(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Autonomous)
	require.NoError(t, p.lie(facets.Application, `{"spec":{"project":"own"}}`))
	before := p.hubAPI.get("shop")
	for _, finalizers := range []string{`["resources-finalizer.argocd.argoproj.io"]`, `["evil.example.com/stuck"]`, `[]`} {
		err := p.lie(facets.Application, `{"deleting":true,"finalizers":`+finalizers+`}`)
		require.ErrorIs(t, err, converge.ErrRefused)
		require.ErrorContains(t, err, "an autonomous agent's application is shown until the agent has it no more")
		require.Equal(t, before, p.hubAPI.get("shop"))
	}
}

// The hub's own project berlin-payments is not for what berlin calls payments.
func TestMirrorOfAnotherProjectIsRefused(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{"the hub's own": nil, "another agent's": {argocd.AnnotationAgent: "berlin-east"}} {
		p := newPair(t, facets.Autonomous)
		payments := argocd.Object{
			ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "berlin-payments", UID: types.UID("x"), Annotations: annotations},
			Spec:       json.RawMessage(`{}`),
		}
		const app = `{"spec":{"project":"payments"}}`
		require.NoError(t, p.lie(facets.Application, app), "there is none")
		held := p.here.Replicas[facets.Application].Held("shop")
		require.Equal(t, converge.VersionOf([]byte(app)), held.Version)
		record(t, p.hub.Applications, p.hubAPI.get("shop"))
		p.onHub("AppProject", payments)
		require.NotEqual(t, held, p.here.Replicas[facets.Application].Held("shop"), "the agent is asked for it again")
		project, ok := p.hub.Projects.Store.Get(types.NamespacedName{Namespace: "argocd", Name: "berlin-payments"})
		require.True(t, ok)
		require.Contains(t, p.here.Records(facets.Project, project), facets.Touched{Facet: facets.Application, Key: "shop"})
		for range 2 {
			err := p.lie(facets.Application, app)
			require.ErrorIs(t, err, converge.ErrRefused, name)
			require.ErrorContains(t, err, `its project would be "berlin-payments", which is there and does not show one of agent berlin`)
			require.Nil(t, p.hubAPI.get("shop"), "nothing is shown of it")
		}
		require.NoError(t, p.lie(facets.Application, `{"spec":{"project":"own"}}`))
	}
}

// A principal that is to show other labels shows them without waiting for a change.
func TestMirrorIsShownAnewByOtherRules(t *testing.T) {
	t.Parallel()
	rules, err := argocd.NewMirrorRules([]string{"team"}, nil, false)
	require.NoError(t, err)
	const app = `{"labels":{"team":"blue"},"spec":{"project":"own"}}`
	p := newPair(t, facets.Autonomous)
	require.NoError(t, p.lie(facets.Application, app))
	require.NoError(t, p.lie(facets.AppProject, app))
	next := newPair(t, facets.Autonomous, func(hub, _ *facets.Options) { hub.MirrorRules = rules })
	record(t, next.hub.Applications, next.hubAPI.put(*p.hubAPI.get("shop")))
	next.onHub("AppProject", *p.hubAPI.object("AppProject", "berlin-shop"))
	for _, facet := range []converge.Facet{facets.Application, facets.AppProject} {
		held := next.here.Replicas[facet].Held("shop")
		require.NotEqual(t, converge.VersionOf([]byte(app)), held.Version)
		require.Equal(t, "on-spoke", held.UID)
		require.NoError(t, next.lie(facet, app))
		require.Equal(t, converge.VersionOf([]byte(app)), next.here.Replicas[facet].Held("shop").Version)
	}
	require.Equal(t, map[string]string{"team": "blue"}, next.hubAPI.get("shop").Labels)
	require.Equal(t, map[string]string{"team": "blue"}, next.hubAPI.object("AppProject", "berlin-shop").Labels)
}
