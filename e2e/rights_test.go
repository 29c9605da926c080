package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// What is missing is said, and when it is there everything works: nobody has to restart anything.
func TestPrincipalNamesMissingRBAC(t *testing.T) {
	t.Parallel()
	principal, err := shared.NewPrincipal(t.Context(), lab.PrincipalOptions{
		Alive: true, Args: []string{"--kubeconfig=" + impersonating(t, shared.Hub, "newcomer")},
	})
	require.NoError(t, err)
	start(t, principal.Start)
	t.Cleanup(func() { stopped(t, principal.Stop) })
	says(t, principal, `Secret argocd/argocd-agent-principal-tls`, "allow get, list and watch on this Secret",
		`applications.argoproj.io is forbidden`)
	requireNotReady(t, principal.HealthURL,
		`applications: not ready: applications on the hub:`, `User "newcomer" cannot list resource "applications"`,
		"certificate: not ready:", `User "newcomer" cannot`)
	s := newSite(t, "waiting", lab.AgentOptions{Principal: principal})
	says(t, s.agent, "Connection to principal failed; retrying")

	bindings := `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: newcomer},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: argocd-agent-principal},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: newcomer}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: newcomer},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: argocd-agent-principal},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: newcomer}]}`
	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), []byte(bindings), lab.Namespace))
	t.Cleanup(func() {
		side{shared.Hub, cluster.Selection{Resource: rbac("clusterrolebindings"), Name: "newcomer"}}.delete(t)
		side{shared.Hub, cluster.Selection{
			Resource: rbac("rolebindings"), Namespace: lab.Namespace, Name: "newcomer",
		}}.delete(t)
	})
	s.newTwin("at-last").create(t).arrives(t)
	requireReady(t, principal.HealthURL)
}

func TestAgentNamesMissingRBAC(t *testing.T) {
	t.Parallel()
	name := unique("rightless")
	s := startSite(t, name, lab.AgentOptions{Args: []string{
		"--kubeconfig=" + impersonating(t, shared.Spoke("b"), name),
	}})
	says(t, s.agent, "applications.argoproj.io is forbidden")
	requireNotReady(t, s.agent.HealthURL,
		`applications: not ready: applications on the spoke:`, `User "`+name+`" cannot list resource "applications"`)
	s.grant(t, "get", "list", "watch", "create", "patch", "delete")
	s.newTwin("at-last").create(t).arrives(t)
	requireReady(t, s.agent.HealthURL)
}

// The other tests show that the rights of docs/operations.md are enough. These are among those that nobody needs.
func TestRBACIsNoMoreThanDocumented(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cluster                                   *lab.Cluster
		user, verb, group, resource, where, named string
		allowed                                   bool
	}{
		{shared.Hub, lab.PrincipalUser, "patch", "argoproj.io", "applications", "a", "any", true}, // as a check of this check
		{shared.Hub, lab.PrincipalUser, "create", "argoproj.io", "applications", "a", "", true},   // of autonomous agents,
		{shared.Hub, lab.PrincipalUser, "delete", "argoproj.io", "applications", "a", "any", true},
		{shared.Hub, lab.PrincipalUser, "list", "argoproj.io", "appprojects", lab.Namespace, "", true},
		{shared.Hub, lab.PrincipalUser, "list", "argoproj.io", "appprojects", "a", "", false},
		{shared.Hub, lab.PrincipalUser, "list", "", "secrets", lab.Namespace, "", true}, // clusters, by their labels
		{shared.Hub, lab.PrincipalUser, "get", "", "secrets", lab.Namespace, "cluster-a", false},
		{shared.Hub, lab.PrincipalUser, "patch", "", "secrets", lab.Namespace, "cluster-a", false},
		{shared.Hub, lab.PrincipalUser, "list", "", "secrets", "a", "argocd-agent-ca", false},
		{shared.Hub, lab.PrincipalUser, "list", "", "secrets", lab.CANamespace, "argocd-agent-ca", false},
		{shared.Hub, lab.PrincipalUser, "list", "", "configmaps", lab.Namespace, "", false},
		{shared.Hub, lab.PrincipalUser, "list", "", "namespaces", "", "", false},
		{shared.Spoke("a"), lab.AgentUser, "delete", "argoproj.io", "applications", lab.Namespace, "any", true},
		{shared.Spoke("a"), lab.AgentUser, "watch", "argoproj.io", "applications", "", "", false},
		{shared.Spoke("a"), lab.AgentUser, "watch", "argoproj.io", "applications", "default", "", false},
		{shared.Spoke("a"), lab.AgentUser, "watch", "", "secrets", lab.Namespace, "argocd-agent-client-tls", true},
		{shared.Spoke("a"), lab.AgentUser, "watch", "", "secrets", lab.Namespace, "", true}, // of repositories, by their labels,
		{shared.Spoke("a"), lab.AgentUser, "create", "", "secrets", lab.Namespace, "", true},
		{shared.Spoke("a"), lab.AgentUser, "create", "", "secrets", "default", "", false},
		{shared.Spoke("a"), lab.AgentUser, "update", "", "configmaps", lab.Namespace, "argocd-agent-deletion-guard", false},
		// For people, by way of the hub, it may what argocd-server may.
		{shared.Spoke("a"), lab.AgentUser, "patch", "apps", "deployments", "default", "any", true},
		{shared.Spoke("a"), lab.AgentUser, "create", "apps", "deployments", "default", "", false},
		{shared.Spoke("a"), lab.AgentUser, "create", "", "pods", "default", "", false},
		{shared.Spoke("a"), lab.AgentUser, "impersonate", "", "users", "", "admin", false},
	} {
		review, err := c.cluster.Kubernetes.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: c.user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: c.verb, Group: c.group, Resource: c.resource, Namespace: c.where, Name: c.named,
				},
			}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, c.allowed, review.Status.Allowed, "%s: %s %s %s/%s: %s",
			c.user, c.verb, c.resource, c.where, c.named, review.Status.Reason)
	}
}

// Argo CD may be installed after us, on either side.
func TestProgramsWaitForArgoCDCRDs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	own, err := lab.Start(ctx, lab.Options{Spokes: []string{"late"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	for _, c := range []*lab.Cluster{own.Hub, own.Spoke("late")} {
		withdraw(t, c)
	}
	principal, err := own.NewPrincipal(ctx, lab.PrincipalOptions{Alive: true})
	require.NoError(t, err)
	require.NoError(t, principal.Start(ctx))
	agent, err := own.NewAgent(ctx, lab.AgentOptions{Spoke: "late", Principal: principal})
	require.NoError(t, err)
	require.NoError(t, agent.Start(ctx))
	const missing = "the server could not find the requested resource"
	says(t, principal, missing)
	says(t, agent, missing)
	requireNotReady(t, principal.HealthURL, "applications: not ready: applications on the hub:", missing)
	requireNotReady(t, agent.HealthURL, "applications: not ready: applications on the spoke:", missing)

	require.NoError(t, argocd.Define(ctx, own.Hub.Cluster, own.Tools))
	require.NoError(t, argocd.Define(ctx, own.Spoke("late").Cluster, own.Tools))
	app := argocd.Application{Namespace: "late", Name: "at-last", RepoURL: "git://127.0.0.1/none", Path: "none", Destination: "late"}
	require.NoError(t, own.Hub.Apply(ctx, argocd.New(app)))
	_, err = own.Spoke("late").Wait(ctx, argocd.Named(lab.Namespace, "at-last"), present)
	require.NoError(t, err)
	requireReady(t, principal.HealthURL)
	requireReady(t, agent.HealthURL)
}

// withdraw has a cluster not know of Applications any more. To delete their definition would do the same, and take half a
// minute.
func withdraw(t *testing.T, c *lab.Cluster) {
	t.Helper()
	require.NoError(t, c.Update(t.Context(), definition(), func(object *unstructured.Unstructured) {
		versions, _, err := unstructured.NestedSlice(object.Object, "spec", "versions")
		require.NoError(t, err)
		for _, version := range versions {
			version.(map[string]any)["served"] = false
		}
		set(object, versions, "spec", "versions")
	}))
	require.Eventually(t, func() bool { // nothing tells when the API server has done that
		_, err := c.List(t.Context(), argocd.All(""))
		return apierrors.IsNotFound(err)
	}, timeout, 50*time.Millisecond)
}

func definition() cluster.Selection {
	return cluster.Selection{
		Resource: schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
		},
		Name: "applications.argoproj.io",
	}
}

func events(namespace string) cluster.Selection {
	return cluster.Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}, Namespace: namespace}
}
