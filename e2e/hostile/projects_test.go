package hostile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// projectLies are a principal's about projects.
func projectLies() []lie {
	return []lie{
		{
			who: principal, about: "appproject", sends: "names that are none: `../x`, `kube-system/x`, `x%2fy`, upper case, the empty one",
			happens: "refused; nothing is made in any namespace",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for _, name := range []converge.Key{"../x", "kube-system/x", "x%2fy", "Lie", ""} {
					requireRefused(t, s.toManaged.put(t, facets.AppProject, name, `{"spec":{"sourceRepos":["*"]}}`))
				}
			},
		},
		{
			who: principal, about: "appproject", sends: "finalizers, an owner and a status beside the spec",
			happens: "the project is made of labels, annotations and spec alone",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				ack := s.toManaged.put(t, facets.AppProject, "lie-more", `{"spec":{"sourceRepos":["*"]},"finalizers":["example.com/stuck"],`+
					`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}],"namespace":"kube-system",`+
					`"metadata":{"finalizers":["example.com/stuck"]}}`)
				if ack.Code == converge.Refused {
					requireNone(t, s.lab.Spoke(managedSpoke), in(projects(), "lie-more"))
					return
				}
				requireDone(t, ack)
				made := get(t, s.lab.Spoke(managedSpoke), in(projects(), "lie-more"))
				require.NotNil(t, made)
				require.Empty(t, made.GetFinalizers())
				require.Empty(t, made.GetOwnerReferences())
			},
		},
		{
			who: principal, about: "appproject", sends: "a key twice in one object, also escaped as `\\u0073pec`, or something after the end",
			happens: "refused: programs differ in how they read it",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for _, payload := range []string{
					`{"spec":{"sourceRepos":["a"]},"spec":{"sourceRepos":["*"]}}`,
					`{"spec":{"sourceRepos":["a"],"sourceRepos":["*"]}}`,
					`{"spec":{"sourceRepos":["a"]},"\u0073pec":{"sourceRepos":["*"]}}`,
					`{"spec":{"sourceRepos":["a"]}}{"spec":{"sourceRepos":["*"]}}`,
				} {
					requireRefused(t, s.toManaged.put(t, facets.AppProject, "lie-twice", payload))
					requireNone(t, s.lab.Spoke(managedSpoke), in(projects(), "lie-twice"))
				}
			},
		},
		{
			who: principal, about: "appproject", sends: "a key in other case beside the right one: `spec` and `Spec`",
			happens: "the other key is an unknown field, and ignored",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireDone(t, s.toManaged.put(t, facets.AppProject, "lie-case",
					`{"spec":{"sourceRepos":["a"],"SourceRepos":["*"]},"Spec":{"sourceRepos":["*"]}}`))
				made := get(t, s.lab.Spoke(managedSpoke), in(projects(), "lie-case"))
				require.NotNil(t, made)
				repos, _, err := unstructured.NestedStringSlice(made.Object, "spec", "sourceRepos")
				require.NoError(t, err)
				require.Equal(t, []string{"a"}, repos)
			},
		},
		{
			who: principal, about: "appproject", sends: "100,000 arrays in one another",
			happens: "refused; the session goes on",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
				requireRefused(t, s.toManaged.put(t, facets.AppProject, "lie-deep", `{"spec":{"x":`+deep+`}}`))
				requireNone(t, s.lab.Spoke(managedSpoke), in(projects(), "lie-deep"))
			},
		},
		{
			who: principal, about: "appproject", sends: "a deletion of a project of the spoke's own",
			happens: "the project stays: only replica objects are deleted",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				spoke := s.lab.Spoke(managedSpoke)
				create(t, spoke, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"local"},"spec":{"description":"mine"}}`)
				for _, uid := range []string{"", string(get(t, spoke, in(projects(), "local")).GetUID())} {
					requireRefusedOrDone(t, s.toManaged.remove(t, facets.AppProject, "local", uid))
					require.NotNil(t, get(t, spoke, in(projects(), "local")))
				}
			},
		},
		{
			who: principal, about: "appproject", sends: "a project that permits the agent's own namespace, by name or by `*`",
			happens: "the project is made with a denial of that namespace",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				ack := s.toManaged.put(t, facets.AppProject, "lie-own-namespace",
					`{"spec":{"sourceRepos":["*"],"destinations":[{"server":"*","namespace":"*"},{"name":"in-cluster","namespace":"argocd"}]}}`)
				requireDone(t, ack)
				requireDenies(t, get(t, s.lab.Spoke(managedSpoke), in(projects(), "lie-own-namespace")), "argocd")
			},
		},
	}
}

// requireDenies checks that a project denies a namespace by every name and address of the cluster. That Argo CD reads it so is shown by the contract tests.
func requireDenies(t *testing.T, project *unstructured.Unstructured, namespace string) {
	t.Helper()
	require.NotNil(t, project)
	destinations, _, err := unstructured.NestedSlice(project.Object, "spec", "destinations")
	require.NoError(t, err)
	for _, d := range destinations {
		if d, _ := d.(map[string]any); d["server"] == "!**" && d["namespace"] == namespace {
			return
		}
	}
	t.Fatalf("nothing in %v denies namespace %s", destinations, namespace)
}
