package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// What is missing is said, and when it is there everything works: nobody has to restart anything.
func TestAPrincipalWithoutRightsSaysWhichOnesItLacks(t *testing.T) {
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
	says(t, s.agent, "Not connected to the principal")

	binding := `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: newcomer},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: argocd-agent-principal},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: newcomer}]}`
	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), []byte(binding), ""))
	t.Cleanup(func() {
		side{shared.Hub, cluster.Selection{Resource: rbac("clusterrolebindings"), Name: "newcomer"}}.delete(t)
	})
	s.newTwin("at-last").create(t).arrives(t)
	requireReady(t, principal.HealthURL)
}

func TestAnAgentWithoutRightsSaysWhichOnesItLacks(t *testing.T) {
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

// Argo CD may be installed after us, on either side.
func TestProgramsWaitForTheDefinitionsOfArgoCD(t *testing.T) {
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
	}, patience, 50*time.Millisecond)
}

func definition() cluster.Selection {
	return cluster.Selection{
		Resource: schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
		},
		Name: "applications.argoproj.io",
	}
}

func events() cluster.Selection {
	return cluster.Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}, Namespace: lab.Namespace}
}
