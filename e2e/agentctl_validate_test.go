package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// checked is what validate has said of one thing.
type checked struct {
	Check, Result, Detail   string
	Problems, MissingRights []string
}

// validated runs validate, and returns what it says by what it is about.
func (a admin) validated(t *testing.T, command string) map[string]checked {
	t.Helper()
	got, _ := a.try(t, "validate "+command+" -o json") // what it says matters here
	var all []checked
	require.NoError(t, json.Unmarshal([]byte(got.output), &all), got.warnings)
	found := make(map[string]checked)
	for _, c := range all {
		found[c.Check] = c
	}
	return found
}

// installed applies Deployments, StatefulSets, Services and NetworkPolicies of Argo CD's own installation to a namespace on the hub, without some
// components, and says that they are ready: no controller does there.
func installed(t *testing.T, namespace string, without ...string) {
	t.Helper()
	c := shared.Hub
	text, err := os.ReadFile(shared.Tools.File(toolset.ArgoCDManifests))
	require.NoError(t, err)
	objects, err := cluster.Parse(text)
	require.NoError(t, err)
	for _, object := range objects {
		if !slices.Contains([]string{"Deployment", "StatefulSet", "Service", "NetworkPolicy"}, object.GetKind()) ||
			slices.Contains(without, object.GetLabels()["app.kubernetes.io/component"]) {
			continue
		}
		object.SetNamespace(namespace)
		require.NoError(t, c.Apply(t.Context(), object))
	}
	apps := c.Kubernetes.AppsV1()
	deployments, err := apps.Deployments(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range deployments.Items {
		d := &deployments.Items[i]
		d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		_, err := apps.Deployments(namespace).UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	sets, err := apps.StatefulSets(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range sets.Items {
		s := &sets.Items[i]
		s.Status = appsv1.StatefulSetStatus{Replicas: 1, ReadyReplicas: 1}
		_, err := apps.StatefulSets(namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}

// readerYAML is a Deployment that reads Redis, and its Service.
const readerYAML = `
apiVersion: v1
kind: Service
metadata: {name: argocd-agent-redis-proxy}
spec: {selector: {app.kubernetes.io/name: %[1]s}, ports: [{port: 6379}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: %[1]s}}
  template:
    metadata: {labels: {app.kubernetes.io/name: %[1]s}}
    spec: {containers: [{name: program, image: program}]}
`

// letsIn has the NetworkPolicy of Redis let Pods in that have a name.
func letsIn(t *testing.T, namespace, name string) {
	t.Helper()
	policies := shared.Hub.Kubernetes.NetworkingV1().NetworkPolicies(namespace)
	policy, err := policies.Get(t.Context(), "argocd-redis-network-policy", metav1.GetOptions{})
	require.NoError(t, err)
	policy.Spec.Ingress[0].From = append(policy.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{
		PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}},
	})
	_, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// Argo CD's own installation is neither a hub nor a spoke as it is: a component too many is named, and a NetworkPolicy that keeps Redis from
// those who read it for agents.
func TestValidateLooksAtWhatIsDeployed(t *testing.T) {
	t.Parallel()
	a, spoke := ready(t), shared.Hub // in another namespace: nothing runs there either
	a.spoke = unique("spoke")
	require.NoError(t, spoke.Apply(t.Context(), namespace(a.spoke)))
	a.environment = append(slices.Clone(a.environment), "ARGOCD_AGENT_AGENT_NAMESPACE="+a.spoke)
	a.does(t, "pki issue agent berlin --agent-context hub")
	onHub, onSpoke := "components of Argo CD on the hub (context hub)", "components of Argo CD on the agent's cluster (context hub)"
	proxyPolicy := "NetworkPolicies between redisproxy and Redis on the hub (context hub)"
	agentPolicy := "NetworkPolicies between argocd-agent-agent and Redis on the agent's cluster (context hub)"
	agent := "agent --agent-context hub"
	before := a.validated(t, agent)
	for _, check := range []string{onHub, onSpoke, proxyPolicy, agentPolicy} {
		require.Equal(t, "skipped", before[check].Result, "%s: nothing is deployed", check)
	}
	installed(t, a.hub)
	installed(t, a.spoke)
	found := a.validated(t, agent)
	require.Len(t, found[onHub].Problems, 1)
	require.Contains(t, found[onHub].Problems[0], "StatefulSet argocd-application-controller: it would work on agents' Applications")
	require.Len(t, found[onSpoke].Problems, 2, "%v", found[onSpoke])
	require.Contains(t, found[onSpoke].Problems[0], "Deployment argocd-server: people would change there what the hub changes back")
	require.Contains(t, found[onSpoke].Problems[1], "Deployment argocd-applicationset-controller")
	require.Equal(t, "skipped", found[proxyPolicy].Result, "there is no redisproxy")

	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), fmt.Appendf(nil, readerYAML, "proxy"), a.hub))
	require.NoError(t, spoke.ApplyYAML(t.Context(), fmt.Appendf(nil, readerYAML, "argocd-agent-agent"), a.spoke))
	found = a.validated(t, agent)
	require.Contains(t, strings.Join(found[proxyPolicy].Problems, ""), "NetworkPolicy "+a.hub+"/argocd-redis-network-policy does not let Deployment proxy reach Deployment argocd-redis at port 6379")
	require.Contains(t, strings.Join(found[agentPolicy].Problems, ""), "does not let Deployment argocd-agent-agent reach Deployment argocd-redis")
	require.Contains(t, found[agentPolicy].Problems[0], "app.kubernetes.io/name=argocd-agent-agent")
	letsIn(t, a.hub, "proxy")
	letsIn(t, a.spoke, "argocd-agent-agent")
	sets(t, shared.Hub, a.hub, "argocd-agent-params", map[string]string{"principal.destination-based-mapping": "true"})
	sets(t, spoke, a.spoke, "argocd-agent-params", map[string]string{"agent.mode": "autonomous"})
	text := a.does(t, "validate "+agent).output
	require.Contains(t, text, "ok       "+proxyPolicy+": let in by argocd-redis-network-policy\n")
	require.Contains(t, text, "ok       "+agentPolicy+": let in by argocd-redis-network-policy\n")
	require.Contains(t, text, "ok       "+onHub+": server, application-controller, applicationset-controller, repo-server, redis\n")

	apps := shared.Hub.Kubernetes.AppsV1().Deployments(a.hub)
	server, err := apps.Get(t.Context(), "argocd-server", metav1.GetOptions{})
	require.NoError(t, err)
	server.Status = appsv1.DeploymentStatus{}
	_, err = apps.UpdateStatus(t.Context(), server, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, apps.Delete(t.Context(), "argocd-repo-server", metav1.DeleteOptions{}))
	broken := a.validated(t, "principal")[onHub].Problems
	require.Len(t, broken, 2)
	require.Contains(t, broken[0], "Deployment argocd-server: no Pod of it is ready: kubectl describe deployment argocd-server -n "+a.hub+" --context hub")
	require.Contains(t, broken[1], "repo-server is not there")
}

// routesYAML publishes the principal by each kind of object that does. Two of them are of definitions that a cluster need not have.
const routesYAML = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: principal, annotations: {nginx.ingress.kubernetes.io/ssl-passthrough: "true"}}
spec:
  rules:
    - {host: ingress.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: argocd-agent-principal, port: {number: 8443}}}}]}}
    - {host: ui.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: argocd-server, port: {number: 443}}}}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ending}
spec:
  tls: [{hosts: [ends.example.com], secretName: ending}]
  rules: [{host: ends.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: argocd-agent-principal, port: {number: 8443}}}}]}}]
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: principal}
spec: {host: route.example.com, to: {kind: Service, name: argocd-agent-principal}, tls: {termination: passthrough}}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: edge}
spec: {host: edge.example.com, to: {kind: Service, name: argocd-agent-principal}, tls: {termination: edge}}
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TLSRoute
metadata: {name: principal}
spec: {hostnames: [tls.example.com, "*.tls.example.com"], rules: [{backendRefs: [{name: argocd-agent-principal, port: 8443}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: principal}
spec: {hostnames: [grpc.example.com], rules: [{backendRefs: [{name: argocd-agent-principal, port: 8443}]}]}
`

// definitionYAML is a definition of a kind, as an API server needs it to keep objects of it.
const definitionYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s, annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/gateway-api/pull/891"}}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: %[2]s, kind: %[3]s}
  versions: [{name: %[4]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// What agents dial has to be in the certificate that they see there.
func TestValidateLooksAtTheNamesByWhichThePrincipalIsPublished(t *testing.T) {
	t.Parallel()
	a := ready(t)
	const check = "names by which agents reach the principal"
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	require.Equal(t, "skipped", a.validated(t, "principal")[check].Result)
	for _, d := range [][]any{
		{"route.openshift.io", "routes", "Route", "v1"}, {"gateway.networking.k8s.io", "tlsroutes", "TLSRoute", "v1alpha2"}, {"gateway.networking.k8s.io", "grpcroutes", "GRPCRoute", "v1"},
	} {
		require.NoError(t, shared.Hub.ApplyYAML(t.Context(), fmt.Appendf(nil, definitionYAML, d...), ""))
		name := fmt.Sprintf("%s.%s", d[1], d[0])
		_, err := shared.Hub.Wait(t.Context(), cluster.Selection{Resource: definitions, Name: name}, func(o *unstructured.Unstructured) bool {
			return o != nil && cluster.Condition(o, "Established") == "True"
		})
		require.NoError(t, err)
	}
	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), []byte(routesYAML), a.hub))
	a.creates(t, "ending", map[string][]byte{"tls.crt": a.secret(t, "argocd-agent-resource-proxy-tls").Data["tls.crt"], "tls.key": a.secret(t, "argocd-agent-resource-proxy-tls").Data["tls.key"]})
	found := a.validated(t, "principal")[check]
	require.Len(t, found.Problems, 5, "%v", found.Problems)
	for i, want := range []string{
		"Ingress " + a.hub + "/ending: the certificate in Secret " + a.hub + "/ending on the hub (context hub) is for argocd-agent-resource-proxy,",
		"Ingress " + a.hub + "/principal: the certificate in Secret " + a.hub + "/argocd-agent-principal-tls on the hub (context hub) is for",
		"Route " + a.hub + "/principal:", "TLSRoute " + a.hub + "/principal:", "TLSRoute " + a.hub + "/principal:",
	} {
		require.Contains(t, found.Problems[i], want)
	}
	require.Contains(t, found.Problems[1], "not for ingress.example.com: name it, and all other names, by --dns of: argocd-agentctl pki issue principal --upsert")
	a.fails(t, "validate principal", "problems found: 1")
	a.does(t, "pki issue principal --upsert --dns ingress.example.com,route.example.com,tls.example.com,*.tls.example.com")
	found = a.validated(t, "principal")[check]
	require.Len(t, found.Problems, 1, "that of the Ingress's own certificate: %v", found.Problems)
	require.NoError(t, shared.Hub.Kubernetes.NetworkingV1().Ingresses(a.hub).Delete(t.Context(), "ending", metav1.DeleteOptions{}))
	found = a.validated(t, "principal")[check]
	require.Equal(t, "ok", found.Result)
	require.Equal(t, "ingress.example.com, edge.example.com, route.example.com, tls.example.com, *.tls.example.com, grpc.example.com", found.Detail)
}

// A person who may not look at something is told so, and nothing passes for right that was not looked at.
func TestValidateNamesMissingRights(t *testing.T) {
	t.Parallel()
	a := ready(t)
	person := a.person(t, shared.Hub, a.hub, `[{apiGroups: [""], resources: [secrets, configmaps], verbs: [get, list]}, {apiGroups: [argoproj.io], resources: [applications], verbs: [list]}]`)
	found := person.validated(t, "principal")
	require.Contains(t, found["names by which agents reach the principal"].MissingRights, "list ingresses.networking.k8s.io in namespace "+a.hub)
	require.Contains(t, found["what is deployed on the hub (context hub)"].MissingRights, "list deployments.apps in namespace "+a.hub)
	person.fails(t, "validate principal", "nothing is wrong that you may look at, and not all was: names by which agents reach the principal: you may not list ingresses")
}
