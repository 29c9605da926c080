package facets_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// definitions are what a peer may say that an application is.
func definitions() []string {
	const marks = `{"team":"blue","argocd-agent.argoproj-labs.io/agent":"paris","argocd-agent.argoproj-labs.io/intent":"{}",` +
		`"argocd-agent.argoproj-labs.io\u002fapplied":"x","argocd.argoproj.io/source-uid":"x","argocd.argoproj.io/principal-uid":"x",` +
		`"argocd.argoproj.io/refresh":"hard","link.argocd.argoproj.io/doc":"https://x","argocd.argoproj.io/adoption-policy":"always"}`
	return []string{
		`{}`, `null`, `[]`, `{"spec":null}`, `{"spec":[]}`, `{"spec":{"project":7,"destination":[]}}`, `{"deleting":true}`,
		`{"deleting":true,"finalizers":["resources-finalizer.argocd.argoproj.io","example.com/stuck"],"spec":{}}`,
		`{"labels":` + marks + `,"annotations":` + marks + `,"finalizers":["resources-finalizer.argocd.argoproj.io/background","foregroundDeletion"],` +
			`"ownerReferences":[{"uid":"x"}],"operation":{"sync":{}},"status":{"sync":{}},"metadata":{"namespace":"x"},"spec":{"project":"own"}}`,
		`{"spec":{"project":"../payments","destination":{"server":"https://elsewhere","name":"in-cluster","namespace":"x"}}}`,
		`{"spec":{"destination":{"namespace":"argocd"}}}`, `{"spec":{"destination":{"namespace":"argocd","namespace":"x"}}}`,
		`{"spec":{"destination":{"Namespace":"argocd","namespac\u0065":"argocd"}}}`, `{"spec":{"Destination":{"namespace":"argocd"}}}`,
		`{"Spec":{"project":"a"},"spec":{"project":"b"}}`, `{"spec":{"source":{"repoURL":"https://x","path":""},"sources":[null,7]}}`,
		`{"labels":{"a":""},"annotations":{"":""},"finalizers":["","resources-finalizer.argocd.argoproj.io"],"spec":{"project":""}}`,
	}
}

// FuzzMirroredDefinition has an autonomous agent say anything at all of an application that the hub shows, or is to show. What it
// shows is in that agent's cluster and of a project of that agent's, and has nothing on which others act.
func FuzzMirroredDefinition(f *testing.F) {
	for _, definition := range definitions() {
		f.Add([]byte(definition), true)
		f.Add([]byte(definition), false)
	}
	f.Fuzz(func(t *testing.T, payload []byte, shown bool) {
		p := newPair(t, facets.Autonomous)
		if shown {
			require.NoError(t, p.lie(facets.Application, `{"labels":{"a":"b"},"spec":{"project":"own"}}`))
			record(t, p.hub.Applications, p.hubAPI.get("shop"))
		}
		before := p.hubAPI.get("shop")
		err := p.lie(facets.Application, string(payload))
		app := p.hubAPI.get("shop")
		if err != nil {
			require.Equal(t, before, app)
			return
		}
		require.Equal(t, "berlin", app.Namespace)
		require.Empty(t, app.Labels)
		require.Empty(t, app.Finalizers)
		require.Empty(t, app.OwnerReferences)
		require.Empty(t, app.Operation)
		require.Empty(t, app.Status)
		for name, value := range app.Annotations {
			switch name {
			case argocd.AnnotationSourceUID:
				require.Equal(t, "on-spoke", value)
			case argocd.AnnotationAgent:
				require.Equal(t, "berlin", value)
			case argocd.AnnotationApplied, argocd.AnnotationMirrorRules:
			default:
				require.True(t, strings.HasPrefix(name, "link.argocd.argoproj.io/"), name)
			}
		}
		var spec struct {
			Project     string         `json:"project"`
			Destination map[string]any `json:"destination"`
		}
		require.NoError(t, json.Unmarshal(fieldsOf(t, app.Spec, "project", "destination"), &spec))
		require.True(t, strings.HasPrefix(spec.Project, "berlin-"), spec.Project)
		require.Equal(t, "berlin", spec.Destination["name"])
		require.NotContains(t, spec.Destination, "server")
	})
}

// fieldsOf returns those of an object's fields that are spelled so. An API server drops others of the same letters.
func fieldsOf(t *testing.T, object []byte, names ...string) []byte {
	t.Helper()
	all, some := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	if len(object) > 0 {
		require.NoError(t, json.Unmarshal(object, &all))
	}
	for _, name := range names {
		if value, ok := all[name]; ok {
			some[name] = value
		}
	}
	text, err := json.Marshal(some)
	require.NoError(t, err)
	return text
}

// FuzzManagedDefinition has a principal say anything at all of an application on a spoke. One is written and nothing else, it is not
// in the closed namespace, and what the spoke has for itself on it stays as it was.
func FuzzManagedDefinition(f *testing.F) {
	for _, definition := range definitions() {
		f.Add([]byte(definition), true)
		f.Add([]byte(definition), false)
	}
	f.Fuzz(func(t *testing.T, payload []byte, there bool) {
		p := newPair(t, facets.Managed, closed)
		if there {
			p.spokeHas(onSpoke("example.com/own"))
		}
		before := p.spokeAPI.get("guestbook")
		err := p.tell(facets.Application, "guestbook", string(payload))
		app := p.spokeAPI.get("guestbook")
		if err != nil || app == nil {
			require.True(t, app == nil || before != nil && string(before.Spec) == string(app.Spec))
			return
		}
		require.Equal(t, "argocd", app.Namespace)
		if before == nil {
			before = &argocd.Application{}
		}
		require.Equal(t, before.OwnerReferences, app.OwnerReferences)
		require.Equal(t, string(before.Operation), string(app.Operation))
		require.Equal(t, string(before.Status), string(app.Status))
		for _, finalizer := range app.Finalizers {
			require.True(t, finalizer == "example.com/own" || argocd.IsCascade(finalizer), finalizer)
		}
		for name := range app.Labels {
			require.False(t, strings.HasPrefix(name, "argocd-agent.argoproj-labs.io/"), name)
		}
		for name, value := range app.Annotations {
			switch {
			case name == argocd.AnnotationSourceUID:
				require.Contains(t, []string{"told", "on-hub"}, value)
			case argocd.IsLocal(name) && name != argocd.AnnotationApplied:
				require.Equal(t, before.Annotations[name], value, name)
			}
		}
		if app.DeletionTimestamp == nil {
			var spec struct {
				Destination map[string]any `json:"destination"`
			}
			_ = json.Unmarshal(fieldsOf(t, app.Spec, "destination"), &spec) // which may be no object
			require.NotEqual(t, "argocd", spec.Destination["namespace"])
		}
	})
}

// spokeHas has the spoke have an application with what it has for itself.
func (p *pair) spokeHas(app argocd.Application) {
	p.Helper()
	app.Annotations = map[string]string{
		argocd.AnnotationSourceUID: "told", argocd.AnnotationRefresh: "normal", "mine": "yes", "notified.notifications.argoproj.io": "{}",
	}
	app.Labels = map[string]string{"team": "blue"}
	app.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	app.Spec = json.RawMessage(`{"project":"own","source":{"repoURL":"https://own","path":"own"},"destination":{"name":"in-cluster","namespace":"x"}}`)
	app.Status = json.RawMessage(`{"health":{"status":"Healthy"},"operationState":{"phase":"Running","startedAt":"2026-01-01T12:00:00Z","operation":{"sync":{}}}}`)
	record(p.T, p.spoke.Applications, p.spokeAPI.put(app))
}

// intentsOfLiars are what a principal may ask of an application.
func intentsOfLiars() []string {
	all := []string{
		`{}`, `null`, `{"operation":{"sync":{}}}`, `{"operationName":"one"}`, `{"operationName":"one","operation":null}`, `{"operationName":"one","operation":{ }}`,
		`{"refresh":"hard","refreshName":"one","hydrate":"normal"}`, `{"terminate":"2026-01-01T12:00:00Z"}`,
		`{"refresh":"x\u0000","refreshName":"\u2028"}`, `{"Operation":{"sync":{}},"operationName":"one"}`,
	}
	for _, operation := range []string{
		`{"sync":{"revision":"abc","prune":true},"initiatedBy":{"username":"admin"}}`, `{"sync":{"manifests":["evil"]}}`, `{"sync":{"Manifests":["evil"]}}`,
		`{"sync":{"source":{"repoURL":"https://evil"}}}`, `{"sync":{"sources":[{"repoURL":"https://own","path":"own"}]}}`, `{"sync":{"sources":[]}}`,
		`{"sync":{"source":{"repoURL":"https://own","path":"own"}}}`, `{"sync":{"m\u0061nifests":["evil"],"manifests":[]}}`, `["evil"]`, `"evil"`, `7`,
		`{"info":[{"name":"argocd-agent.argoproj-labs.io/intent","value":"x"}],"sync":null}`,
	} {
		all = append(all, `{"operationName":"one","operation":`+operation+`}`)
	}
	return all
}

// FuzzIntent has a principal ask anything at all of an application on a spoke, of any mode. All of the application is as it was, but
// for the operation that was asked for, the refresh, and that what runs is to end. Where that is wanted, no operation brings a source
// or manifests of its own. What is asked for again changes nothing.
func FuzzIntent(f *testing.F) {
	for _, intent := range intentsOfLiars() {
		f.Add([]byte(intent), true)
		f.Add([]byte(intent), false)
	}
	f.Fuzz(func(t *testing.T, payload []byte, autonomous bool) {
		mode, uid := facets.Managed, "told"
		if autonomous {
			mode, uid = facets.Autonomous, "on-spoke" // which the application has
		}
		p := newPair(t, mode, func(_, spoke *facets.Options) { spoke.RefuseIntentSources = autonomous })
		p.spokeHas(onSpoke("example.com/own", foreground))
		before := p.spokeAPI.get("guestbook")
		asked := told(string(payload))
		asked.UID = uid
		_, err := p.there.Replicas[facets.Intent].Apply(t.Context(), "guestbook", asked)
		app := p.spokeAPI.get("guestbook")
		if err != nil {
			require.Equal(t, string(before.Operation), string(app.Operation))
		}
		requireOnlyAsked(t, before, app)
		if autonomous && app.Operation != nil {
			requireOwnSources(t, app.Operation)
		}
		p.spokeAPI.takeWrites()
		_, again := p.there.Replicas[facets.Intent].Apply(t.Context(), "guestbook", asked)
		require.Equal(t, err == nil, again == nil)
		require.Empty(t, p.spokeAPI.takeWrites())
	})
}

// statusesOfLiars are what an agent may say that an application's status is.
func statusesOfLiars() []string {
	const metadata = `"metadata":{"labels":{"x":"y"},"annotations":{"argocd.argoproj.io/refresh":"hard"},"finalizers":["x"],"ownerReferences":[{"uid":"x"}]}`
	all := []string{
		`{}`, `null`, `[]`, `7`, `{"status":null}`, `{"status":[]}`, `{"status":"x"}`, `{"status":{},"status":{"health":{}}}`, `{"stat\u0075s":{"health":{}}}`,
		`{"status":{},"spec":{"project":"evil"},` + metadata + `,"operation":{"sync":{"manifests":["evil"]}}}`,
		`{"Status":{},"Spec":{"project":"evil"},"Metadata":{},"Operation":{"sync":{}}}`, `{"operation":{"sync":{}}}`, `{"operation":null,"status":{}}`,
		`{"deleting":true,"gone":true,"deleted":true}`, `{"labels":{"a":"b"},"annotations":{"argocd-agent.argoproj-labs.io/intent":"{}"},"finalizers":[]}`,
		`{"finished":{"operation":"one","refresh":"one"},"status":{"health":{}}}`, `{"finished":{"operation":"","Operation":"one"}}`, `{"finished":[]}`,
	}
	for _, status := range []string{
		`{"spec":{"project":"evil"},` + metadata + `}`, `{"health":{"status":"Healthy"},"sync":{"status":"Synced","comparedTo":{"source":{"repoURL":"https://evil"}}}}`,
		`{"conditions":[{"type":"AgentError","message":"run this"},{"type":"x"},null,7]}`, `{"history":[{"id":1,"source":{"repoURL":"https://evil"}}]}`,
		`{"operationState":{"phase":"Succeeded","operation":{"sync":{"manifests":["evil"]}},"syncResult":{"source":{"repoURL":"https://evil"}}}}`,
		`{"operationState":{"phase":"Running","startedAt":"2026-01-01T12:00:00Z","operation":{"info":[{"name":"argocd-agent.argoproj-labs.io/intent","value":"x"}]}}}`,
		`{"op":"replace","path":"/spec","value":{}}`,
	} {
		all = append(all, `{"status":`+status+`}`, `{"operation":{"sync":{"revision":"x"}},"status":`+status+`}`)
	}
	return all
}

// FuzzStatus has an agent say anything at all of the status of an application on the hub, of either mode. Nothing is written but that
// one application, whose spec, labels, annotations, finalizers and owners stay what they were: but for the annotations by which the hub
// asks something of the agent, which go when that is done.
func FuzzStatus(f *testing.F) {
	for _, status := range statusesOfLiars() {
		f.Add([]byte(status), true)
		f.Add([]byte(status), false)
	}
	f.Fuzz(func(t *testing.T, payload []byte, autonomous bool) {
		mode, uid := facets.Managed, "on-hub"
		app := onHub("example.com/own", foreground)
		app.Annotations = map[string]string{
			argocd.AnnotationRefresh: "normal", argocd.AnnotationIntent: "{}", "mine": "yes", "notified.notifications.argoproj.io": "{}",
		}
		if autonomous {
			mode, uid = facets.Autonomous, "on-spoke"
			app.Annotations[argocd.AnnotationSourceUID], app.Annotations[argocd.AnnotationAgent] = uid, "berlin"
		}
		app.Labels = map[string]string{"team": "blue"}
		app.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
		app.Operation = json.RawMessage(`{"sync":{"revision":"asked"},"initiatedBy":{"username":"admin"}}`)
		p := newPair(t, mode)
		record(t, p.hub.Applications, p.hubAPI.put(app))
		before := p.hubAPI.get("guestbook")
		said := told(string(payload))
		said.UID = uid
		_, _ = p.here.Replicas[facets.Status].Apply(t.Context(), "guestbook", said)
		after := p.hubAPI.get("guestbook")
		require.NotNil(t, after)
		require.Equal(t, string(before.Spec), string(after.Spec))
		was, is := before.ObjectMeta, after.ObjectMeta
		for _, meta := range []*metav1.ObjectMeta{&was, &is} {
			meta.ResourceVersion, meta.Annotations = "", maps.Clone(meta.Annotations)
			for _, asked := range []string{argocd.AnnotationRefresh, argocd.AnnotationHydrate, argocd.AnnotationIntent} {
				delete(meta.Annotations, asked)
			}
		}
		require.Equal(t, was, is)
		for _, asked := range []string{argocd.AnnotationRefresh, argocd.AnnotationHydrate} {
			if value, there := after.Annotations[asked]; there {
				require.Equal(t, before.Annotations[asked], value)
			}
		}
		require.Len(t, p.hubAPI.objects, 1)
	})
}

// requireOnlyAsked checks that an application is as it was, but for what one may ask of it.
func requireOnlyAsked(t *testing.T, before, after *argocd.Application) {
	t.Helper()
	var was, is map[string]any
	for into, app := range map[*map[string]any]*argocd.Application{&was: before, &is: after} {
		text, err := json.Marshal(app)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, into))
		delete(*into, "operation")
		metadata, _ := (*into)["metadata"].(map[string]any)
		delete(metadata, "resourceVersion")
		annotations, _ := metadata["annotations"].(map[string]any)
		for _, asked := range []string{argocd.AnnotationRefresh, argocd.AnnotationHydrate, argocd.AnnotationIntent} {
			delete(annotations, asked)
		}
	}
	state, _ := is["status"].(map[string]any)["operationState"].(map[string]any)
	require.Contains(t, []any{"Running", argocd.PhaseTerminating}, state["phase"])
	state["phase"] = "Running"
	require.Equal(t, was, is)
}

// requireOwnSources checks that an operation deploys nothing but the application's own source.
func requireOwnSources(t *testing.T, operation []byte) {
	t.Helper()
	var stored struct {
		Sync map[string]any `json:"sync"` // by the names of its fields as they are spelled: an API server drops others
	}
	require.NoError(t, json.Unmarshal(fieldsOf(t, operation, "sync"), &stored))
	require.Empty(t, stored.Sync["manifests"])
	require.Empty(t, stored.Sync["sources"])
	if source, ok := stored.Sync["source"].(map[string]any); ok && len(source) > 0 {
		require.Equal(t, map[string]any{"repoURL": "https://own", "path": "own"}, source)
	}
}
