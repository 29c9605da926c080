package argocd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// reduced returns what is kept of an application with this spec.
func reduced(spec string) *argocd.App {
	return argocd.Reduce(true)(&argocd.Application{Spec: json.RawMessage(spec)}, nil)
}

// normal returns a spec as it is sent and compared, in JSON.
func normal(tb testing.TB, spec string) string {
	tb.Helper()
	payload, _, err := reduced(spec).Define()
	require.NoError(tb, err)
	var d argocd.Definition
	require.NoError(tb, json.Unmarshal(payload, &d))
	return string(d.Spec)
}

// inDefaults returns the spec that fields alone make, with what every normal spec has.
func inDefaults(fields string) string {
	if fields != "" {
		fields += ","
	}
	return "{" + fields + `"destination":{"name":"in-cluster"},"project":"default"}`
}

// What the spoke's application controller leaves out is not sent: it would be drift at once. A field that we do not know is kept. The
// contract test compares this with Argo CD's types, field by field.
func TestSpecIsNormalizedAsByArgoCD(t *testing.T) {
	t.Parallel()
	kept := func(fields string) [2]string { return [2]string{fields, fields} }
	becomes := func(from, to string) [2]string { return [2]string{from, to} }
	for name, c := range map[string][2]string{
		"nothing":               becomes(``, ``),
		"no project":            becomes(`"project":""`, ``),
		"automated, all off":    kept(`"syncPolicy":{"automated":{"prune":false,"selfHeal":false,"allowEmpty":false}}`),
		"automated, disabled":   kept(`"syncPolicy":{"automated":{"enabled":false}}`),
		"zero retries":          becomes(`"syncPolicy":{"retry":{"limit":0}}`, `"syncPolicy":{"retry":{}}`),
		"kustomize, forced":     becomes(`"source":{"kustomize":{"forceCommonLabels":true,"forceCommonAnnotations":true}}`, `"source":{}`),
		"kustomize, unheard of": kept(`"source":{"kustomize":{"inALaterRelease":true}}`),
		"helm, off":             becomes(`"source":{"helm":{"values":"","skipCrds":false,"parameters":[],"valuesObject":null}}`, `"source":{}`),
		"helm, no values":       kept(`"source":{"helm":{"valuesObject":{}}}`),
		"directory, off":        becomes(`"source":{"directory":{"recurse":false,"jsonnet":{"libs":[],"tlas":[],"extVars":[]}}}`, `"source":{}`),
		"no sources, a source":  becomes(`"source":{"helm":{}},"sources":[]`, `"source":{}`),
		"large numbers":         kept(`"revisionHistoryLimit":12345678901234567890`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.JSONEq(t, inDefaults(c[1]), normal(t, inDefaults(c[0])))
		})
	}
}

func TestSpecDestinationBecomesInCluster(t *testing.T) {
	t.Parallel()
	for _, from := range []string{
		`{}`,
		`{"destination":null}`,
		`{"destination":{}}`,
		`{"destination":{"server":"https://kubernetes.default.svc"}}`,
		`{"destination":{"name":"spoke-a","server":""}}`,
		`{"project":null,"destination":{"name":"in-cluster"}}`,
	} {
		require.JSONEq(t, inDefaults(""), normal(t, from), "%s", from)
	}
	require.JSONEq(t, `{"destination":{"name":"in-cluster","namespace":"n"},"project":"p"}`,
		normal(t, `{"destination":{"server":"https://x","namespace":"n"},"project":"p"}`))
}

func TestSpecThatIsNoObjectIsAnError(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{`[]`, `"x"`, `1`, `{`, `{"a":`} {
		_, _, err := reduced(spec).Define()
		require.Error(t, err, "%s", spec)
	}
}

// What was normalised is normal: else the replica object would differ from what was applied.
func FuzzNormalizeSpecIsIdempotent(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, ``, `{"syncPolicy":{"automated":{}}}`, `{"source":{"helm":{"valuesObject":{"a":1.0}}},"sources":[]}`,
		`{"sources":[{"directory":{"jsonnet":{}}},null,3]}`, `{"destination":[],"project":4,"syncPolicy":[],"source":"x"}`,
		`{"source":{"kustomize":{"images":[]},"directory":{"jsonnet":[]}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		payload, version, err := reduced(spec).Define()
		if err != nil {
			return
		}
		once := normal(t, spec)
		require.Contains(t, once, `"name":"in-cluster"`)
		again, sameVersion, err := reduced(once).Define()
		require.NoError(t, err)
		require.Equal(t, string(payload), string(again))
		require.Equal(t, version, sameVersion)
	})
}

func TestDefinitionHasNoLocalAnnotationsOrFinalizers(t *testing.T) {
	t.Parallel()
	a := argocd.Reduce(true)(&argocd.Application{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{
				"note":                     "for both",
				argocd.AnnotationRefresh:   "hard",
				argocd.AnnotationSourceUID: "uid",
				argocd.AnnotationIntent:    "name",
				"kubectl.kubernetes.io/last-applied-configuration": "{}",
				"notified.notifications.argoproj.io":               "{}",
			},
			Finalizers: []string{
				"example.com/own", "resources-finalizer.argocd.argoproj.io/background", "resources-finalizer.argocd.argoproj.io",
				"post-delete-finalizer.argocd.argoproj.io",
			},
		},
		Spec: json.RawMessage(`{}`),
	}, nil)
	payload, _, err := a.Define()
	require.NoError(t, err)
	require.JSONEq(t, `{
		"labels":{"team":"a"},
		"annotations":{"note":"for both"},
		"finalizers":["resources-finalizer.argocd.argoproj.io/background","resources-finalizer.argocd.argoproj.io"],
		"spec":{"destination":{"name":"in-cluster"},"project":"default"}
	}`, string(payload))
}

// What holds an application is taken away on each side at its own time. But what it is to be deleted with goes along.
func TestVersionOfDeletingApplicationIgnoresFinalizers(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	first := argocd.Reduce(true)(&argocd.Application{
		ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: &now, Finalizers: []string{"example.com/own", argocd.FinalizerCascade + "/background", argocd.FinalizerCascade},
		},
		Spec: json.RawMessage(`{"project":"a"}`),
	}, nil)
	last := argocd.Reduce(true)(&argocd.Application{
		ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, Labels: map[string]string{"a": "b"}},
		Spec:       json.RawMessage(`{}`),
	}, first)
	a, version, err := first.Define()
	require.NoError(t, err)
	b, same, err := last.Define()
	require.NoError(t, err)
	require.JSONEq(t, `{"deleting":true,"finalizers":["resources-finalizer.argocd.argoproj.io/background","resources-finalizer.argocd.argoproj.io"]}`, string(a))
	require.Equal(t, `{"deleting":true}`, string(b))
	require.Equal(t, version, same)
	require.Equal(t, converge.VersionOf(b), same)
}

// The definition is made once for all revisions that differ only in their status, and anew for any other.
func TestDefinitionIsCachedUntilSpecOrMetadataChange(t *testing.T) {
	t.Parallel()
	reduce := argocd.Reduce(true)
	base := func() *argocd.Application {
		return &argocd.Application{
			ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}, Finalizers: []string{argocd.FinalizerCascade},
			},
			Spec: json.RawMessage(`{"project":"p"}`),
		}
	}
	old := reduce(base(), nil)
	_, version, err := old.Define()
	require.NoError(t, err)

	same := base()
	same.Status = json.RawMessage(`{"health":{}}`)
	_, v, err := reduce(same, old).Define()
	require.NoError(t, err)
	require.Equal(t, version, v)

	now := metav1.Now()
	for name, change := range map[string]func(*argocd.Application){
		"label":      func(a *argocd.Application) { a.Labels["l"] = "2" },
		"annotation": func(a *argocd.Application) { delete(a.Annotations, "a") },
		"finalizer":  func(a *argocd.Application) { a.Finalizers = nil },
		"spec":       func(a *argocd.Application) { a.Spec = json.RawMessage(`{"project":"q"}`) },
		"deletion":   func(a *argocd.Application) { a.DeletionTimestamp = &now },
	} {
		changed := base()
		change(changed)
		_, v, err := reduce(changed, old).Define()
		require.NoError(t, err)
		require.NotEqual(t, version, v, name)
	}
}
