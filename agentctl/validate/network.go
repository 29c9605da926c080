package validate

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

const redisPort = 6379

// reader is who reads Redis on a cluster, for an agent or for the hub.
type reader struct {
	// service is the Service of its Pods, and name that of its workload where there is no Service.
	service, name string
	// redis is the address of Redis where that is set; the Service argocd-redis if it is empty.
	redis string
}

// admitted looks whether the NetworkPolicies of Redis let the reader in. Only those of the namespace are looked at, in which both are.
func (r reader) admitted(ctx context.Context, c *cluster.Client, all []cluster.Workload) (checks.Check, error) {
	name := fmt.Sprintf("NetworkPolicies between %s and Redis on %s", r.name, c)
	lacks, err := c.Lacks(ctx, authorizationv1.ResourceAttributes{Verb: "list", Group: networkingv1.GroupName, Resource: "networkpolicies"},
		authorizationv1.ResourceAttributes{Verb: "get", Resource: "services"})
	if err != nil || len(lacks) > 0 {
		return checks.Forbidden(name, c.String(), c.ContextFlag(), lacks...), err
	}
	to, port, err := r.redisPods(ctx, c, all)
	if err != nil {
		return checks.Check{}, err
	}
	from, err := r.pods(ctx, c, all)
	switch {
	case err != nil:
		return checks.Check{}, err
	case to == nil:
		return checks.Skip(name, "no Deployment and no StatefulSet of Redis is in namespace "+c.Namespace), nil
	case from == nil:
		return checks.Skip(name, fmt.Sprintf("no Deployment of %s is in namespace %s", r.name, c.Namespace)), nil
	}
	policies, err := c.NetworkPolicies(ctx)
	if err != nil {
		return checks.Check{}, err
	}
	namespace, err := c.NamespaceLabels(ctx)
	if err != nil {
		return checks.Check{}, err
	}
	in, problems := ingress(policies, namespace, from, to, port), []string(nil)
	if len(in.selecting) > 0 && in.by == "" {
		problems = append(problems, fmt.Sprintf("NetworkPolicy %s/%s does not let %s reach %s at port %d: add its Pods to those from which it does: podSelector with matchLabels %s",
			c.Namespace, strings.Join(in.selecting, ", "), from, to, port.number, labels.Set(from.Template.Labels)))
	}
	detail := "there is none for " + to.String()
	if in.by != "" {
		detail = "let in by " + in.by
	}
	return checks.Of(name, detail, problems...), nil
}

// redisPods returns whose Pods Redis is, and at which port of theirs; nil if it is none of the namespace.
func (r reader) redisPods(ctx context.Context, c *cluster.Client, all []cluster.Workload) (*cluster.Workload, podPort, error) {
	host, _, err := net.SplitHostPort(cmp.Or(r.redis, "argocd-redis:6379"))
	if err != nil {
		return nil, podPort{}, fmt.Errorf("address of Redis: %w", err)
	}
	name, _, _ := strings.Cut(host, ".")
	service, err := c.Service(ctx, name)
	if err != nil {
		return nil, podPort{}, err
	}
	port := podPort{number: redisPort}
	if service != nil && len(service.Spec.Ports) > 0 {
		target := service.Spec.Ports[0].TargetPort
		port = podPort{number: cmp.Or(target.IntValue(), redisPort), name: target.StrVal}
	}
	return workload(all, service, func(w cluster.Workload) bool { return w.Is(redis) }), port, nil
}

// pods returns whose Pods the reader is, nil if they are none of the namespace.
func (r reader) pods(ctx context.Context, c *cluster.Client, all []cluster.Workload) (*cluster.Workload, error) {
	if r.service == "" {
		return workload(all, nil, func(w cluster.Workload) bool { return w.Name == r.name }), nil
	}
	service, err := c.Service(ctx, r.service)
	if err != nil || service == nil {
		return nil, err
	}
	return workload(all, service, func(cluster.Workload) bool { return false }), nil
}

// workload returns the one whose Pods a Service selects or, without a Service, that is meant otherwise; nil if there is none.
func workload(all []cluster.Workload, service *corev1.Service, otherwise func(cluster.Workload) bool) *cluster.Workload {
	is := otherwise
	if service != nil && len(service.Spec.Selector) > 0 {
		selector := labels.SelectorFromSet(service.Spec.Selector)
		is = func(w cluster.Workload) bool { return selector.Matches(labels.Set(w.Template.Labels)) }
	}
	if at := slices.IndexFunc(all, is); at >= 0 {
		return &all[at]
	}
	return nil
}

// podPort is a port of a Pod, which may have a name.
type podPort struct {
	number int
	name   string
}

// admission is what NetworkPolicies say of a connection.
type admission struct {
	selecting []string // those that concern who is reached
	by        string   // the one that lets it in, if any does
}

// ingress says which NetworkPolicies concern a connection within a namespace. Without any, everybody may connect; with some, one of them has
// to let the connection in.
func ingress(policies []networkingv1.NetworkPolicy, namespace map[string]string, from, to *cluster.Workload, port podPort) admission {
	var a admission
	for i := range policies {
		p := &policies[i]
		if !matches(&p.Spec.PodSelector, to.Template.Labels) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		a.selecting = append(a.selecting, p.Name)
		if slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return isOpen(r.Ports, port) && comesFrom(r.From, namespace, from.Template.Labels)
		}) {
			a.by = p.Name
		}
	}
	return a
}

// isOpen reports whether a rule is for a port. One without ports is for all.
func isOpen(ports []networkingv1.NetworkPolicyPort, port podPort) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		switch {
		case p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return p.Port.StrVal == port.name
		case p.EndPort != nil:
			return port.number >= p.Port.IntValue() && port.number <= int(*p.EndPort)
		default:
			return p.Port.IntValue() == port.number
		}
	})
}

// comesFrom reports whether a rule is for Pods with these labels in a namespace. One without peers is for all. Which addresses Pods have
// nobody knows, but for a rule for all.
func comesFrom(peers []networkingv1.NetworkPolicyPeer, namespace, pod map[string]string) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			return strings.HasSuffix(p.IPBlock.CIDR, "/0") && len(p.IPBlock.Except) == 0
		}
		return (p.NamespaceSelector == nil || matches(p.NamespaceSelector, namespace)) &&
			(p.PodSelector == nil || matches(p.PodSelector, pod))
	})
}

// matches reports whether a selector selects labels. One that is invalid selects nothing: the API server has let none in.
func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}
