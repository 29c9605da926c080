package contract_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// closed is a project that a hub sends, as the agent writes it that closes its own namespace.
func closed(t tb, q question) v1alpha1.AppProject {
	content, err := argocd.HubsProject(argocdNamespace, true)(argocd.Content{Spec: encoded(t, q.spec())})
	require.NoError(t, err)
	return v1alpha1.AppProject{Spec: decoded[v1alpha1.AppProjectSpec](t, content.Spec)}
}

// Whatever a hub sends, what the agent writes permits nothing in the agent's own namespace: of no cluster, by no name and address,
// since the cluster may have several, and not together with a global project either, whose destinations Argo CD appends.
func TestProjectOfAHubPermitsNothingInTheAgentsNamespace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		q.destinations = append(q.destinations, rapid.SampledFrom([]v1alpha1.ApplicationDestination{
			byServer("*", "*"), byName("*", "*"), byName(inCluster, argocdNamespace), byServer("!**", argocdNamespace), byServer("!x", argocdNamespace),
			{Name: "!x", Server: "!y", Namespace: "!z"}, byServer(inClusterServer, "argo*"), byName("!x", "argocd"),
		}).Draw(t, "hostile"))
		project := closed(t, q)
		if rapid.Bool().Draw(t, "global") {
			project.Spec.Destinations = append(project.Spec.Destinations, byServer("*", "*"), byName("*", "*"))
		}
		name := rapid.SampledFrom([]string{inCluster, "own-by-another-name", ""}).Draw(t, "name")
		server := rapid.SampledFrom([]string{inClusterServer, "https://10.0.0.1:6443", "https://[::1]/a?b", ""}).Draw(t, "server")
		require.False(t, permits(t, project, name, server, argocdNamespace), "%+v", project.Spec.Destinations)
	})
}

// All other namespaces stay as they were, and the project stays one that Argo CD takes.
func TestClosedProjectPermitsAllElseAsBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		before, after := v1alpha1.AppProject{Spec: q.spec()}, closed(t, q)
		require.Equal(t, permits(t, before, inCluster, inClusterServer, q.namespace), permits(t, after, inCluster, inClusterServer, q.namespace))
		require.Equal(t, before.ValidateProject() == nil, after.ValidateProject() == nil)
		again, err := argocd.HubsProject(argocdNamespace, true)(argocd.Content{Spec: encoded(t, after.Spec)})
		require.NoError(t, err)
		require.JSONEq(t, string(encoded(t, after.Spec)), string(again.Spec), "it is the same if it is written again")
	})
}

// A project of the spoke's own is read as Argo CD reads it. Where its library of globs gives up, ours says no.
func TestProjectOfTheSpokeIsReadAsByArgoCD(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		q.namespace = rapid.SampledFrom([]string{"berlin", "b", "prod-d", "kube-system", argocdNamespace}).Draw(t, "own")
		if slices.ContainsFunc(q.destinations, func(d v1alpha1.ApplicationDestination) bool { return d.Server == "" && d.Name == "" }) {
			return
		}
		record := argocd.ReduceObject(&argocd.Object{Spec: encoded(t, q.spec())}, nil)
		require.Equal(t, permits(t, v1alpha1.AppProject{Spec: q.spec()}, inCluster, inClusterServer, q.namespace), record.PermitsOnSpoke(q.namespace), "%+v", q)
	})
}
