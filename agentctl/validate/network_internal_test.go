package validate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// A connection is let in as Kubernetes does it: by any rule of any policy that selects who is reached, and by none if none selects it.
func TestNetworkPoliciesLetIn(t *testing.T) {
	t.Parallel()
	pods := func(app string) *cluster.Workload {
		return &cluster.Workload{Name: app, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}}}
	}
	selects := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	policy := func(rules ...networkingv1.NetworkPolicyIngressRule) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selects("app", "redis"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: rules,
		}}
	}
	from := func(peers ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: peers}
	}
	at := func(ports ...networkingv1.NetworkPolicyPort) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{Ports: ports}
	}
	number := func(n int32) *intstr.IntOrString { return new(intstr.FromInt32(n)) }
	other, egress, bad := policy(), policy(), policy(from(networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "nonsense"}},
	}}))
	other.Spec.PodSelector = *selects("app", "server")
	egress.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	proxy := networkingv1.NetworkPolicyPeer{PodSelector: selects("app", "proxy")}
	here := selects(corev1.LabelMetadataName, "argocd")
	for name, c := range map[string]struct {
		policies []networkingv1.NetworkPolicy
		selected int
		in       bool
	}{
		"none":                          {nil, 0, false},
		"of others":                     {[]networkingv1.NetworkPolicy{other}, 0, false},
		"of what it connects to":        {[]networkingv1.NetworkPolicy{egress}, 0, false},
		"nobody":                        {[]networkingv1.NetworkPolicy{policy()}, 1, false},
		"everybody":                     {[]networkingv1.NetworkPolicy{policy(from())}, 1, true},
		"its Pods":                      {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{PodSelector: selects("app", "x")}, proxy))}, 1, true},
		"other Pods":                    {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{PodSelector: selects("app", "x")}))}, 1, false},
		"a selector that is none":       {[]networkingv1.NetworkPolicy{bad}, 1, false},
		"the second policy":             {[]networkingv1.NetworkPolicy{policy(), policy(from(proxy))}, 2, true},
		"all Pods of the namespace":     {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{NamespaceSelector: here}))}, 1, true},
		"its Pods in another namespace": {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{NamespaceSelector: selects("a", "b"), PodSelector: proxy.PodSelector}))}, 1, false},
		"other Pods of the namespace":   {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{NamespaceSelector: here, PodSelector: selects("app", "x")}))}, 1, false},
		"all addresses":                 {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}}))}, 1, true},
		"some addresses":                {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}))}, 1, false},
		"all addresses but some":        {[]networkingv1.NetworkPolicy{policy(from(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8"}}}))}, 1, false},
		"its port":                      {[]networkingv1.NetworkPolicy{policy(at(networkingv1.NetworkPolicyPort{Port: number(1)}, networkingv1.NetworkPolicyPort{Port: number(6379)}))}, 1, true},
		"its port by name":              {[]networkingv1.NetworkPolicy{policy(at(networkingv1.NetworkPolicyPort{Port: new(intstr.FromString("redis"))}))}, 1, true},
		"a range of ports":              {[]networkingv1.NetworkPolicy{policy(at(networkingv1.NetworkPolicyPort{Port: number(6000), EndPort: new(int32(7000))}))}, 1, true},
		"a range below it":              {[]networkingv1.NetworkPolicy{policy(at(networkingv1.NetworkPolicyPort{Port: number(6000), EndPort: new(int32(6378))}))}, 1, false},
		"another port":                  {[]networkingv1.NetworkPolicy{policy(at(networkingv1.NetworkPolicyPort{Port: number(6380)}))}, 1, false},
		"every port":                    {[]networkingv1.NetworkPolicy{policy(at(networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP)}))}, 1, true},
		"its port of another protocol":  {[]networkingv1.NetworkPolicy{policy(at(networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolUDP), Port: number(6379)}))}, 1, false},
	} {
		got := ingress(c.policies, map[string]string{corev1.LabelMetadataName: "argocd"}, pods("proxy"), pods("redis"), podPort{6379, "redis"})
		require.Len(t, got.selecting, c.selected, name)
		require.Equal(t, c.in, got.by != "", name)
	}
}

// What belongs on a hub does not belong on a spoke.
func TestComponentsOfArgoCDWhereTheyBelong(t *testing.T) {
	t.Parallel()
	c := new(cluster.Client)
	run := func(names ...string) (all []cluster.Workload) {
		for _, name := range names {
			all = append(all, cluster.Workload{Kind: "Deployment", Name: "argocd-" + name, Wanted: 1, Ready: 1})
		}
		return all
	}
	for name, k := range map[string]struct {
		wanted   components
		all      []cluster.Workload
		external bool
		problems []string
	}{
		"a hub":                               {hubComponents(false), run(server, repoServer, redis, applicationSet), false, nil},
		"a hub with a controller":             {hubComponents(false), run(server, repoServer, redis, controller), false, []string{"Deployment argocd-application-controller: it would work on agents'"}},
		"a hub with Applications of its own":  {hubComponents(true), run(server, repoServer, redis, controller), false, nil},
		"a hub without a server":              {hubComponents(false), run(repoServer, redis), false, []string{"server is not there"}},
		"a hub without Redis":                 {hubComponents(false), run(server, repoServer), false, []string{"redis is not there"}},
		"a hub with Redis elsewhere":          {hubComponents(false), run(server, repoServer), true, nil},
		"a managed spoke":                     {spokeComponents(false), run(controller, repoServer, redis), false, nil},
		"a managed spoke with all":            {spokeComponents(false), run(controller, repoServer, redis, server, applicationSet), false, []string{"argocd-server: people", "argocd-applicationset-controller: it would make"}},
		"an autonomous spoke with all":        {spokeComponents(true), run(controller, repoServer, redis, server, applicationSet), false, nil},
		"a spoke without a controller":        {spokeComponents(true), run(repoServer, redis), false, []string{"application-controller is not there"}},
		"a spoke that is not ready":           {spokeComponents(true), append(run(repoServer, redis), cluster.Workload{Kind: "StatefulSet", Name: "argocd-application-controller", Wanted: 1}), false, []string{"StatefulSet argocd-application-controller: no Pod of it is ready: kubectl describe statefulset argocd-application-controller"}},
		"a controller that is scaled to none": {hubComponents(false), append(run(server, repoServer, redis), cluster.Workload{Kind: "StatefulSet", Name: "argocd-application-controller"}), false, nil},
	} {
		got := k.wanted.check(c, k.all, k.external)
		require.Len(t, got.Problems, len(k.problems), "%s: %v", name, got.Problems)
		for i, want := range k.problems {
			require.Contains(t, got.Problems[i], want, name)
		}
	}
	require.Equal(t, "skipped", string(hubComponents(false).check(c, nil, false).Result))
}
