package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/security"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/namespaces"
)

// someNamespaces is a list of globs and of regular expressions between slashes.
func someNamespaces() *rapid.Generator[[]string] {
	expression := rapid.Custom(func(t *rapid.T) string {
		text := ""
		for _, p := range rapid.SliceOfN(rapid.SampledFrom([]string{
			"^", "$", "b", "prod", "-", ".*", "(?!prod-)", "(?<!b)", "[a-z]+", "[^b]", "(", ")", "(?i)BERLIN", `\d`, "a{1,2}", "|", "/", `(b)\1`, "ü",
		}), 0, 4).Draw(t, "expression") {
			text += p
		}
		return "/" + text + "/"
	})
	return rapid.SliceOfN(rapid.OneOf(aPattern(), expression), 0, 3)
}

func TestNamespaceIsInTheListAsInArgoCD(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defer skipPanics(t)
		patterns, namespace := someNamespaces().Draw(t, "patterns"), aNamespace().Draw(t, "namespace")
		list, err := namespaces.Parse(patterns)
		if err != nil {
			return // ours refuses to start with such a list; Argo CD matches nothing with one of its patterns
		}
		require.Equal(t, security.IsNamespaceEnabled(namespace, argocdNamespace, patterns), list.Has(namespace))
	})
}

// With a pattern that does not compile, a project is still for the namespaces of the others.
func TestProjectIsForTheSourceNamespacesAsInArgoCD(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defer skipPanics(t)
		namespace := aName().Draw(t, "namespace")
		spec := v1alpha1.AppProjectSpec{
			SourceNamespaces: someNamespaces().Draw(t, "patterns"), Destinations: []v1alpha1.ApplicationDestination{byName("*", "*")},
		}
		app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		record := argocd.ReduceObject(&argocd.Object{Spec: encoded(t, spec)}, nil)
		require.Equal(t, v1alpha1.AppProject{Spec: spec}.IsAppNamespacePermitted(app, argocdNamespace),
			record.IsFor(argocd.Recipient{Agent: namespace, Server: argocd.ClusterServer(proxy, namespace), Namespace: namespace}))
	})
}
