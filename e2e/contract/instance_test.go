package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// anApplication draws the name of an Application. It may have dots.
func anApplication() *rapid.Generator[types.NamespacedName] {
	return rapid.Custom(func(t *rapid.T) types.NamespacedName {
		return types.NamespacedName{
			Namespace: rapid.OneOf(rapid.Just(argocdNamespace), rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?`)).Draw(t, "namespace"),
			Name:      rapid.StringMatching(`[a-z0-9]([-.a-z0-9]{0,8}[a-z0-9])?`).Draw(t, "name"),
		}
	})
}

func TestInstanceNameIsArgoCDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := anApplication().Draw(t, "application")
		instance := argocd.Instance(id, argocdNamespace)
		app := v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}}
		require.Equal(t, app.InstanceName(argocdNamespace), instance)

		name, namespace := argo.ParseInstanceName(instance, argocdNamespace)
		theirs := types.NamespacedName{Namespace: namespace, Name: name}
		require.Equal(t, id, theirs)
		require.Equal(t, id, argocd.ParseInstance(instance, argocdNamespace))
	})
}

// What crosses the wire or stands in Redis need not be an instance name.
func TestParsedInstanceNameIsArgoCDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z_/.-]{0,6}`).Draw(t, "text")
		name, namespace := argo.ParseInstanceName(text, argocdNamespace)
		require.Equal(t, types.NamespacedName{Namespace: namespace, Name: name}, argocd.ParseInstance(text, argocdNamespace))
	})
}
