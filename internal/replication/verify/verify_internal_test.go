package verify

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// state is a state of that UID.
func state(uid, content string) converge.State {
	return converge.State{UID: uid, Version: converge.VersionOf([]byte(content))}
}

func TestDifferences(t *testing.T) {
	source := map[converge.Key]converge.State{
		"equal": state("1", "a"), "missing": state("2", "a"), "version": state("3", "a"), "uid": state("4", "a"), "unmarked": state("5", "a"),
	}
	replica := map[converge.Key]converge.State{
		"equal": state("1", "a"), "extra": state("6", "a"), "version": state("3", "b"), "uid": state("7", "a"), "unmarked": state("", "a"),
	}
	found := make(map[converge.Key]string)
	for _, d := range differences(facets.Application, maps.All(source), maps.All(replica)) {
		require.Equal(t, Difference{facets.Application, d.Key, source[d.Key], replica[d.Key]}, d)
		require.NotContains(t, found, d.Key)
		found[d.Key] = d.String()
	}
	a, b := "@"+source["equal"].Version.String(), "@"+replica["version"].Version.String()
	require.Equal(t, map[converge.Key]string{
		"missing":  "application missing: the copy is missing (source 2" + a + ", copy nothing)",
		"extra":    "application extra: the copy should not be there (source nothing, copy 6" + a + ")",
		"version":  "application version: the copy differs (source 3" + a + ", copy 3" + b + ")",
		"uid":      "application uid: the copy was made from another object (source 4" + a + ", copy 7" + a + ")",
		"unmarked": "application unmarked: the copy does not say what it was made from (source 5" + a + ", copy " + a + ")",
	}, found)
}

// opened returns both sides of the agent berlin, with empty stores.
func opened(t *testing.T, mode facets.Mode) sides {
	t.Helper()
	return openedIn(t, mode, "argocd")
}

// openedIn is opened for a spoke whose Argo CD is in that namespace.
func openedIn(t *testing.T, mode facets.Mode, namespace string) sides {
	t.Helper()
	nobody := &rest.Config{Host: "http://127.0.0.1:1"}
	all, err := facets.ParseSelector("")
	require.NoError(t, err)
	s, err := Pair{
		Hub:   Site{Config: nobody, Namespace: "argocd", Mapping: mapping.ByNamespace{}},
		Spoke: Site{Config: nobody, Namespace: namespace, Mapping: mapping.ByNamespace{Spoke: namespace}},
		Agent: "berlin", Mode: mode, Selector: all, ApplicationNamespace: namespace,
	}.open(changes{signal.New()})
	require.NoError(t, err)
	return s
}

// application writes an application to the store of one side, and returns what is kept of it.
func application(t *testing.T, c *facets.Cluster, meta metav1.ObjectMeta, spec string) *argocd.App {
	t.Helper()
	meta.ResourceVersion = "1"
	app, err := c.Store.RecordWrite(&argocd.Application{ObjectMeta: meta, Spec: json.RawMessage(spec)})
	require.NoError(t, err)
	return app
}

// record is application for another object.
func record(t *testing.T, of interface {
	RecordWrite(*argocd.Object) (*argocd.Record, error)
}, meta metav1.ObjectMeta, o argocd.Object,
) *argocd.Record {
	t.Helper()
	o.ObjectMeta = meta
	o.ResourceVersion = "1"
	r, err := of.RecordWrite(&o)
	require.NoError(t, err)
	return r
}

// marks are the annotations of a replica object that says to have been made of that version and left alone since.
func marks(uid types.UID, of converge.Version, own encoded) map[string]string {
	_, version, _ := own.Encode()
	return map[string]string{argocd.AnnotationSourceUID: string(uid), argocd.AnnotationApplied: argocd.Applied(of, version)}
}

// showing adds the annotations of what shows, by the rules that hold by default, something of the agent berlin's.
func showing(annotations map[string]string) map[string]string {
	annotations[argocd.AnnotationAgent], annotations[argocd.AnnotationMirrorRules] = "berlin", argocd.MirrorRules{}.ID()
	return annotations
}

// names returns the facets and keys of differences.
func names(found []Difference) []string {
	var all []string
	for _, d := range found {
		all = append(all, string(d.Facet)+" "+string(d.Key))
	}
	return all
}

// What shows an autonomous agent's application is compared with what it should be, whatever it says that it was made of, and
// wherever its destination says that it belongs. Of labels and annotations it has external links.
func TestDifferencesOfMirroredApplication(t *testing.T) {
	const own = `{"project":"team","source":{"repoURL":"x"},"destination":{"server":"https://kubernetes.default.svc","namespace":"shop"}}`
	const right = `{"project":"berlin-team","source":{"repoURL":"x"},"destination":{"name":"berlin","namespace":"shop"}}`
	link := map[string]string{"link.argocd.argoproj.io/doc": "https://example.com"}
	with := func(annotation, value string) metav1.ObjectMeta {
		m := maps.Clone(link)
		m[annotation] = value
		return metav1.ObjectMeta{Annotations: m}
	}
	for name, c := range map[string]struct {
		spec  string
		copy  metav1.ObjectMeta
		found bool
	}{
		"right":           {right, metav1.ObjectMeta{}, false},
		"annotation":      {right, with("example.com/team", "x"), true},
		"link":            {right, with("link.argocd.argoproj.io/doc", "x"), true},
		"no link":         {right, metav1.ObjectMeta{Annotations: map[string]string{}}, true},
		"other rules":     {right, with(argocd.AnnotationMirrorRules, "other"), true},
		"destination":     {strings.Replace(right, `"berlin"`, `"other"`, 1), metav1.ObjectMeta{}, true},
		"server":          {strings.Replace(right, `"name":"berlin"`, `"name":"berlin","server":"x"`, 1), metav1.ObjectMeta{}, true},
		"namespace":       {strings.Replace(right, `"shop"`, `"x"`, 1), metav1.ObjectMeta{}, true},
		"project":         {strings.Replace(right, `berlin-team`, `team`, 1), metav1.ObjectMeta{}, true},
		"rest":            {strings.Replace(right, `"repoURL":"x"`, `"repoURL":"y"`, 1), metav1.ObjectMeta{}, true},
		"label":           {right, metav1.ObjectMeta{Labels: map[string]string{"team": "x"}}, true},
		"finalizer":       {right, metav1.ObjectMeta{Finalizers: []string{argocd.FinalizerCascade}}, true},
		"other finalizer": {right, metav1.ObjectMeta{Finalizers: []string{"mine"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, facets.Autonomous)
			original := application(t, s.spoke, metav1.ObjectMeta{
				Namespace: "argocd", Name: "app", UID: "on-spoke", Finalizers: []string{argocd.FinalizerCascade},
				Labels: map[string]string{"team": "x"}, Annotations: with("example.com/team", "x").Annotations,
			}, own)
			require.Equal(t, []string{"application app"}, names(s.compare()), "it is missing")
			_, version, err := original.Mirror()
			require.NoError(t, err)
			meta := c.copy
			meta.Namespace, meta.Name = "berlin", "app"
			if meta.Annotations == nil {
				meta.Annotations = link
			}
			draft, err := argocd.Reduce(false)(&argocd.Application{ObjectMeta: meta, Spec: json.RawMessage(c.spec)}, nil).Own()
			require.NoError(t, err)
			annotations := showing(marks("on-spoke", version, draft))
			maps.Copy(annotations, meta.Annotations)
			meta.Annotations = annotations
			application(t, s.hub, meta, c.spec)
			if c.found {
				require.Equal(t, []string{"application app"}, names(s.compare()))
			} else {
				require.Empty(t, s.compare())
			}
		})
	}
}

// The same holds for a project, of which no labels and no roles are shown.
func TestDifferencesOfMirroredAppProject(t *testing.T) {
	const own = `{"sourceRepos":["*"],"sourceNamespaces":["x"],"destinations":[{"name":"in-cluster","namespace":"a"},{"server":"*","namespace":"a"}],` +
		`"roles":[{"name":"r","jwtTokens":[{"iat":1}],"policies":["p, proj:team:r, applications, get, team/*, allow",` +
		`"p, proj:team:r, clusters, get, team/x, allow"]}]}`
	const right = `{"sourceRepos":["*"],"sourceNamespaces":["berlin"],"destinations":[{"name":"berlin","namespace":"a"}]}`
	for name, c := range map[string]struct {
		spec  string
		copy  metav1.ObjectMeta
		found bool
	}{
		"right":             {right, metav1.ObjectMeta{}, false},
		"source namespaces": {strings.Replace(right, `["berlin"]`, `["x"]`, 1), metav1.ObjectMeta{}, true},
		"destinations":      {strings.Replace(right, `"name":"berlin"`, `"name":"*"`, 1), metav1.ObjectMeta{}, true},
		"roles": {strings.TrimSuffix(right, "}") + `,"roles":[{"name":"r","policies":["p, proj:berlin-team:r, applications, get, ` +
			`berlin-team/berlin/*, allow"]}]}`, metav1.ObjectMeta{}, true},
		"rest":        {strings.Replace(right, `"sourceRepos":["*"]`, `"sourceRepos":[]`, 1), metav1.ObjectMeta{}, true},
		"label":       {right, metav1.ObjectMeta{Labels: map[string]string{"team": "x"}}, true},
		"other rules": {right, metav1.ObjectMeta{Annotations: map[string]string{argocd.AnnotationMirrorRules: "other"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, facets.Autonomous)
			original := record(t, s.spoke.Projects.Store, metav1.ObjectMeta{
				Namespace: "argocd", Name: "team", UID: "on-spoke", Labels: map[string]string{"team": "x"},
			}, argocd.Object{Spec: json.RawMessage(own)})
			_, version, err := original.Content().Encode()
			require.NoError(t, err)
			meta := c.copy
			draft := argocd.ReduceObject(&argocd.Object{ObjectMeta: meta, Spec: json.RawMessage(c.spec)}, nil).Content()
			meta.Namespace, meta.Name, meta.Annotations = "argocd", "berlin-team", showing(marks("on-spoke", version, draft))
			maps.Copy(meta.Annotations, c.copy.Annotations)
			record(t, s.hub.Projects.Store, meta, argocd.Object{Spec: json.RawMessage(c.spec)})
			record(t, s.hub.Projects.Store, metav1.ObjectMeta{
				Namespace: "argocd", Name: "berlin-b-team", Annotations: map[string]string{argocd.AnnotationAgent: "berlin-b"},
			}, argocd.Object{})
			if c.found {
				require.Equal(t, []string{"appproject team"}, names(s.compare()))
			} else {
				require.Empty(t, s.compare(), "and another agent's is none of this one's")
			}
		})
	}
}

// A managed agent's copy of a project denies the namespace that the agent is in, and says so, whatever the hub's own is.
func TestDifferencesOfManagedAppProject(t *testing.T) {
	const own = `{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}`
	const kept = `{"destinations":[{"name":"in-cluster","server":"https://kubernetes.default.svc","namespace":"*"}`
	const open, right = kept + `]}`, kept + `,{"server":"!**","namespace":"cd"}]}`
	for name, c := range map[string]struct {
		spec, closed string
		found        bool
	}{
		"right":        {right, "cd", false},
		"open":         {open, "", true},
		"said only":    {open, "cd", true},
		"not said":     {right, "", true},
		"other":        {strings.Replace(right, `"namespace":"cd"`, `"namespace":"argocd"`, 1), "argocd", true},
		"other denied": {strings.Replace(right, `"namespace":"cd"`, `"namespace":"argocd"`, 1), "cd", true},
		"one cluster":  {strings.Replace(right, `"!**"`, `"!https://kubernetes.default.svc"`, 1), "cd", true},
		"rest":         {strings.Replace(right, `"namespace":"*"`, `"namespace":"x"`, 1), "cd", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := openedIn(t, facets.Managed, "cd")
			record(t, s.hub.Projects.Store, metav1.ObjectMeta{Namespace: "argocd", Name: "team", UID: "on-hub"},
				argocd.Object{Spec: json.RawMessage(own)})
			require.Equal(t, []string{"appproject team"}, names(s.compare()), "it is missing")
			original, ok := s.onHub.Sources[facets.AppProject].Project("team")
			require.True(t, ok)
			draft := argocd.ReduceObject(&argocd.Object{Spec: json.RawMessage(c.spec)}, nil).Content()
			meta := metav1.ObjectMeta{Namespace: "cd", Name: "team", Annotations: marks("on-hub", original.Version, draft)}
			if c.closed != "" {
				meta.Annotations[argocd.AnnotationClosed] = c.closed
			}
			record(t, s.spoke.Projects.Store, meta, argocd.Object{Spec: json.RawMessage(c.spec)})
			if c.found {
				require.Equal(t, []string{"appproject team"}, names(s.compare()))
			} else {
				require.Empty(t, s.compare())
			}
		})
	}
}

// What is where replica objects are and was made from nothing that is there is found, whatever was taken from it.
func TestOrphans(t *testing.T) {
	marked := map[string]string{argocd.AnnotationSourceUID: "gone"}
	meta := func(namespace, name string, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}
	}
	s := opened(t, facets.Autonomous)
	application(t, s.hub, meta("berlin", "marked", marked), `{"destination":{"name":"elsewhere"}}`)
	application(t, s.hub, meta("berlin", "wiped", nil), `{}`)
	application(t, s.hub, meta("paris", "other", marked), `{"destination":{"name":"berlin"}}`)
	record(t, s.hub.Projects.Store, meta("argocd", "berlin-wiped", nil), argocd.Object{})
	record(t, s.hub.Projects.Store, meta("argocd", "other", marked), argocd.Object{})
	require.Equal(t, []string{"application marked", "application wiped", "appproject wiped"}, names(s.compare()))

	s = opened(t, facets.Managed)
	application(t, s.spoke, meta("argocd", "wiped", nil), `{}`)
	record(t, s.spoke.Projects.Store, meta("argocd", "wiped", nil), argocd.Object{})
	labelled := meta("argocd", "wiped", nil)
	labelled.Labels = map[string]string{argocd.LabelSecretType: argocd.SecretTypeRepoCreds}
	record(t, s.secrets, labelled, argocd.Object{})
	record(t, s.secrets, meta("argocd", "unlabelled", marked), argocd.Object{})
	record(t, s.secrets, meta("argocd", "other", nil), argocd.Object{})
	record(t, s.spoke.ConfigMaps.Store, meta("argocd", argocd.KeysConfigMap, nil), argocd.Object{Data: map[string]string{"a": "b"}})
	require.Equal(t, []string{
		"application wiped", "appproject wiped", "gpg-keys " + argocd.KeysConfigMap, "repo-creds wiped", "repository unlabelled",
	}, names(s.compare()))
	record(t, s.spoke.ConfigMaps.Store, meta("argocd", "emptied", nil), argocd.Object{})
	require.Len(t, s.compare(), 5, "keys that were withdrawn are nobody's")
}
