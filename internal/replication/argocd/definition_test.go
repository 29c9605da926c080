package argocd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

func anApp(spec string, annotations map[string]string) *argocd.App {
	return argocd.Reduce(true)(&argocd.Application{
		ObjectMeta: metav1.ObjectMeta{Name: "guestbook", Namespace: "argocd", Annotations: annotations, Finalizers: []string{argocd.FinalizerCascade}},
		Spec:       json.RawMessage(spec),
	}, nil)
}

// mirrored is an application of the agent berlin as the hub gets to see it.
func mirrored(t *testing.T, app *argocd.App) (argocd.Definition, converge.Version) {
	t.Helper()
	payload, version, err := app.Mirror()
	require.NoError(t, err)
	var d argocd.Definition
	require.NoError(t, json.Unmarshal(payload, &d))
	d, err = argocd.MirrorDefinition("berlin", argocd.MirrorRules{}, d)
	require.NoError(t, err)
	return d, version
}

func TestMirroredApplicationHasAgentsProjectAndCluster(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"project":"own","destination":{"server":"https://kubernetes.default.svc","namespace":"x"}}`: `{"project":"berlin-own","destination":{"name":"berlin","namespace":"x"}}`,
		`{"destination":{"name":"in-cluster"}}`:                                                       `{"project":"berlin-default","destination":{"name":"berlin"}}`,
		`{"project":"","destination":{"name":"elsewhere"}}`:                                           `{"project":"berlin-default","destination":{"name":"berlin"}}`,
		`{"project":"own"}`:                 `{"project":"berlin-own","destination":{"name":"berlin"}}`,
		`{"project":"own","destination":7}`: `{"project":"berlin-own","destination":{"name":"berlin"}}`,
	} {
		d, _ := mirrored(t, anApp(spec, nil))
		require.JSONEq(t, want, string(d.Spec), spec)
		require.Empty(t, d.Finalizers, "nobody on the hub works them off")
	}
	_, err := argocd.MirrorDefinition("berlin", argocd.MirrorRules{}, argocd.Definition{Spec: json.RawMessage(`[]`)})
	require.ErrorContains(t, err, "spec")
}

// An application that is being deleted is shown as long as it is there.
func TestMirroredApplicationStaysWhileDeleting(t *testing.T) {
	t.Parallel()
	app := *anApp(`{"project":"own"}`, nil)
	_, before := mirrored(t, &app)
	now := metav1.Now()
	deleting := argocd.Reduce(true)(&argocd.Application{
		ObjectMeta: metav1.ObjectMeta{Name: "guestbook", Namespace: "argocd", DeletionTimestamp: &now}, Spec: json.RawMessage(`{"project":"own"}`),
	}, nil)
	d, after := mirrored(t, deleting)
	require.False(t, d.Deleting)
	require.Equal(t, before, after)
	_, offered, err := deleting.Define()
	require.NoError(t, err)
	require.NotEqual(t, after, offered)
}

// replicaOf is a replica object of a source version, as it was applied, with another spec since.
func replicaOf(t *testing.T, d argocd.Definition, of converge.Version, since string) *argocd.App {
	t.Helper()
	_, own, err := d.Encode()
	require.NoError(t, err)
	spec := string(d.Spec)
	if since != "" {
		spec = since
	}
	return argocd.Reduce(true)(&argocd.Application{
		ObjectMeta: metav1.ObjectMeta{
			Name: "guestbook", Namespace: "berlin", Labels: d.Labels,
			Annotations: map[string]string{argocd.AnnotationSourceUID: "on-spoke", argocd.AnnotationApplied: argocd.Applied(of, own)},
		},
		Spec: json.RawMessage(spec),
	}, nil)
}

func TestReplicaObjectKnowsAppliedVersion(t *testing.T) {
	t.Parallel()
	d, of := mirrored(t, anApp(`{"project":"own","destination":{"name":"in-cluster","namespace":"x"}}`, nil))
	_, own, err := d.Encode()
	require.NoError(t, err)
	require.NotEqual(t, of, own)
	require.Equal(t, of, replicaOf(t, d, of, "").AppliedVersion())
	for name, since := range map[string]string{
		"its project":     `{"project":"berlin-other","destination":{"name":"berlin","namespace":"x"}}`,
		"its destination": `{"project":"berlin-own","destination":{"name":"in-cluster","namespace":"x"}}`,
		"its cluster":     `{"project":"berlin-own","destination":{"server":"https://elsewhere","namespace":"x"}}`,
		"its namespace":   `{"project":"berlin-own","destination":{"name":"berlin","namespace":"y"}}`,
	} {
		changed := replicaOf(t, d, of, since).AppliedVersion()
		require.NotEqual(t, of, changed, name)
		require.NotEqual(t, own, changed, name)
	}
	require.Equal(t, of, replicaOf(t, d, of, `{"destination":{"namespace":"x","name":"berlin"},"project":"berlin-own"}`).AppliedVersion(), "their order means nothing")

	// A replica object as it was sent has one version.
	app := anApp(`{"project":"own","destination":{"name":"in-cluster"}}`, nil)
	payload, version, err := app.Define()
	require.NoError(t, err)
	var sent argocd.Definition
	require.NoError(t, json.Unmarshal(payload, &sent))
	sent.Finalizers = nil
	_, sentVersion, err := sent.Encode()
	require.NoError(t, err)
	require.NotEqual(t, version, sentVersion, "finalizers are part of it")
	require.NotContains(t, argocd.Applied(version, version), " ")
	require.Equal(t, sentVersion, replicaOf(t, sent, sentVersion, "").AppliedVersion())
}

// Whatever users write into the annotation, no object is taken for a replica object that it is not.
func TestReplicaObjectWithMalformedAppliedAnnotationHasOwnVersion(t *testing.T) {
	t.Parallel()
	d, of := mirrored(t, anApp(`{"project":"own"}`, nil))
	_, own, err := d.Encode()
	require.NoError(t, err)
	for _, text := range []string{"", " ", "x", "x " + own.String(), of.String(), of.String() + " ", of.String() + " x", own.String() + " " + of.String()} {
		app := argocd.Reduce(true)(&argocd.Application{
			ObjectMeta: metav1.ObjectMeta{Name: "guestbook", Namespace: "berlin", Annotations: map[string]string{argocd.AnnotationApplied: text}},
			Spec:       d.Spec,
		}, nil)
		require.Equal(t, own, app.AppliedVersion(), "%q", text)
	}
}
