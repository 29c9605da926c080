package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// A person who lacks rights is told which, and nobody looks for a fault of the hop: a Secret that may not be read is not one that is missing.
func TestDoctorNamesMissingRightsOfItsUser(t *testing.T) {
	t.Parallel()
	a := ready(t)
	spoke := shared.Spoke("b")
	person := a.person(t, spoke, a.spoke, "[]")
	roles := spoke.Kubernetes.RbacV1()
	role, err := roles.Roles(a.spoke).Get(t.Context(), "person", metav1.GetOptions{})
	require.NoError(t, err)
	command := "doctor berlin --side spoke --agent-context spoke-b --agent-redis 127.0.0.1:1"
	may := func(rules ...rbacv1.PolicyRule) {
		role.Rules = append(role.Rules, rules...)
		role, err = roles.Roles(a.spoke).Update(t.Context(), role, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	where := " in namespace " + a.spoke
	missing := "ask for that right, or choose a context that has it by --agent-context"

	got := person.show(t, command)
	require.NotContains(t, got, "failed")
	require.Contains(t, got, "skipped  rights of the agent on the agent's cluster (context spoke-b): you may not get configmaps argocd-agent-params"+where)
	require.Contains(t, got, "skipped  certificates of the agent on its cluster: you may not get secrets argocd-agent-client-tls"+where+", nor get secrets argocd-agent-ca"+where)
	require.Contains(t, got, "skipped  Redis of the agent's cluster: you may not get configmaps argocd-agent-params"+where+", nor get secrets argocd-redis"+where)
	person.fails(t, command, "agent berlin: no hop fails that you may look at, and not all were: rights of the agent", missing)
	require.Contains(t, person.show(t, "doctor berlin --side spoke --agent-context spoke-b"),
		"nor get services"+where+", nor list pods"+where+", nor create pods/portforward"+where, "without an address a port is forwarded")

	may(rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"argocd-agent-client-tls", "argocd-agent-ca"}})
	got = person.show(t, command)
	require.Contains(t, got, "ok       certificates of the agent on its cluster: CN=berlin\n", "the names of the Secrets are enough")
	require.Contains(t, got, "skipped  Redis of the agent's cluster: you may not")
	may(rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}})
	got = person.show(t, command)
	require.Contains(t, got, "skipped  rights of the agent on the agent's cluster (context spoke-b): you may not create subjectaccessreviews.authorization.k8s.io, nor get serviceaccounts")
	person.fails(t, command, "the first hop that fails: Redis of the agent's cluster", "no connection")
	person.fails(t, "doctor berlin --side spoke --agent-context spoke-b", "no hop fails that you may look at")
}

// What the hub refuses to a person is told as such too, and what may be looked at is.
func TestDoctorNamesMissingRightsOnTheHub(t *testing.T) {
	t.Parallel()
	a := ready(t)
	person := a.person(t, shared.Hub, a.hub, "[]")
	where := " in namespace " + a.hub
	got := person.show(t, "doctor berlin --side hub")
	require.NotContains(t, got, "failed")
	for _, line := range []string{
		"rights of the principal on the hub (context hub): you may not get configmaps argocd-agent-params" + where + ", nor list secrets" + where,
		"cluster Secret and namespace of the agent on the hub: you may not get secrets argocd-agent-ca" + where,
		"stream of the agent to a principal: you may not get services argocd-agent-principal-metrics" + where + ", nor list pods" + where + ", nor get pods/proxy" + where,
		"argocd-server's cluster connection, and the Kubernetes API through the tunnel: you may not list secrets" + where,
		"argocd-server's connection to redisproxy: you may not get configmaps argocd-cmd-params-cm" + where + ", nor list deployments.apps" + where,
	} {
		require.Contains(t, got, "skipped  "+line)
	}
	person.fails(t, "doctor berlin --side hub", "no hop fails that you may look at, and not all were")
	var all []struct{ MissingRights []string }
	require.NoError(t, json.Unmarshal([]byte(person.show(t, "doctor berlin --side hub -o json")), &all))
	require.Contains(t, all[1].MissingRights, "list secrets"+where)
}

// person is somebody who has these rights in a namespace of a cluster, and no others there.
func (a admin) person(t *testing.T, c *lab.Cluster, namespace, rules string) admin {
	t.Helper()
	require.NoError(t, c.ApplyYAML(t.Context(), fmt.Appendf(nil, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: person}
rules: %s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: person}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: person}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]
`, rules, cluster.Person), namespace))
	kubeconfig, err := c.KubeconfigFor(cluster.Person, c.Address, namespace)
	require.NoError(t, err)
	a.environment = append([]string{"KUBECONFIG=" + kubeconfig}, a.environment[1:]...)
	return a
}
