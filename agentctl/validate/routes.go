package validate

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

const (
	routesCheck = "names by which agents reach the principal"

	gatewayAPI = "gateway.networking.k8s.io"
	routeAPI   = "route.openshift.io"
)

// passthroughs are the annotations by which Ingress controllers leave TLS to the server: of ingress-nginx and of HAProxy.
func passthroughs() []string {
	return []string{"nginx.ingress.kubernetes.io/ssl-passthrough", "haproxy.org/ssl-passthrough", "haproxy-ingress.github.io/ssl-passthrough"}
}

// route is a name by which the principal is reached from elsewhere.
type route struct {
	object, host string
	// secret has the certificate that agents see, if TLS ends before the principal; elsewhere says that it does, and nobody knows by which.
	secret    string
	elsewhere bool
}

// routes looks whether the names by which the principal is published are those of the certificate that agents see there.
func routes(ctx context.Context, hub *cluster.Client) (checks.Check, error) {
	kinds := []authorizationv1.ResourceAttributes{
		{Verb: "list", Group: networkingv1.GroupName, Resource: "ingresses"}, {Verb: "list", Group: routeAPI, Resource: "routes"},
		{Verb: "list", Group: gatewayAPI, Resource: "tlsroutes"}, {Verb: "list", Group: gatewayAPI, Resource: "grpcroutes"},
	}
	if lacks, err := hub.Lacks(ctx, kinds...); err != nil || len(lacks) > 0 {
		return checks.Forbidden(routesCheck, hub.String(), hub.ContextFlag(), lacks...), err
	}
	all, err := published(ctx, hub)
	if err != nil {
		return checks.Check{}, err
	}
	if len(all) == 0 {
		return checks.Skip(routesCheck, fmt.Sprintf("no Ingress, Route, TLSRoute or GRPCRoute in namespace %s leads to Service %s", hub.Namespace, ca.PrincipalService)), nil
	}
	var names, problems []string
	for _, r := range all {
		problem, err := r.problem(ctx, hub)
		if err != nil {
			return checks.Check{}, err
		}
		if names = append(names, r.host); problem != "" {
			problems = append(problems, problem)
		}
	}
	return checks.Of(routesCheck, strings.Join(names, ", "), problems...), nil
}

// problem says why an agent would not trust what it reaches by the name; nothing if it would, or nobody knows.
func (r route) problem(ctx context.Context, hub *cluster.Client) (string, error) {
	if r.elsewhere {
		return "", nil
	}
	name, remedy := r.secret, "issue it for that name"
	if name == "" {
		name, remedy = ca.PrincipalSecret, "name it, and all other names, by --dns of: argocd-agentctl pki issue principal --upsert"
	}
	found, err := hub.Get(ctx, name)
	if err != nil || found == nil {
		return "", err // that there is none is said by another check, or it comes from elsewhere
	}
	chain, err := ca.ReadPair(found.Data)
	if err != nil {
		return "", nil //nolint:nilerr // as above
	}
	if !covers(chain[0], r.host) {
		return fmt.Sprintf("%s: the certificate in %s is for %s, not for %s: %s", r.object, hub.Secret(name), certificate.List(certificate.Names(chain[0])), r.host, remedy), nil
	}
	return "", nil
}

// covers reports whether a certificate is for a name, which may begin with a wildcard.
func covers(leaf *x509.Certificate, host string) bool {
	if strings.HasPrefix(host, "*.") {
		return slices.Contains(leaf.DNSNames, host)
	}
	return certificate.Covers(leaf, host) == nil
}

// published returns all names that lead to the principal's Service.
func published(ctx context.Context, hub *cluster.Client) ([]route, error) {
	var all []route
	for _, kind := range []struct {
		group, resource string
		versions        []string
		read            func(*unstructured.Unstructured) ([]route, error)
	}{
		{networkingv1.GroupName, "ingresses", []string{"v1"}, fromIngress},
		{routeAPI, "routes", []string{"v1"}, fromRoute},
		{gatewayAPI, "tlsroutes", []string{"v1", "v1alpha3", "v1alpha2"}, fromGateway},
		{gatewayAPI, "grpcroutes", []string{"v1", "v1alpha2"}, fromGateway},
	} {
		found, err := hub.Objects(ctx, kind.group, kind.resource, kind.versions...)
		if err != nil {
			return nil, err
		}
		for i := range found {
			names, err := kind.read(&found[i])
			if err != nil {
				return nil, fmt.Errorf("%s %s/%s on %s: %w", found[i].GetKind(), hub.Namespace, found[i].GetName(), hub, err)
			}
			for _, r := range names {
				if r.host != "" { // what takes any name says none
					r.object = fmt.Sprintf("%s %s/%s", found[i].GetKind(), hub.Namespace, found[i].GetName())
					all = append(all, r)
				}
			}
		}
	}
	return all, nil
}

func fromIngress(o *unstructured.Unstructured) ([]route, error) {
	var ingress networkingv1.Ingress
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &ingress); err != nil {
		return nil, err
	}
	leads := func(b *networkingv1.IngressBackend) bool {
		return b != nil && b.Service != nil && b.Service.Name == ca.PrincipalService
	}
	var all []route
	for _, rule := range ingress.Spec.Rules {
		to := rule.HTTP == nil && leads(ingress.Spec.DefaultBackend) || rule.HTTP != nil &&
			slices.ContainsFunc(rule.HTTP.Paths, func(p networkingv1.HTTPIngressPath) bool { return leads(&p.Backend) })
		if !to {
			continue
		}
		r := route{host: rule.Host}
		if !slices.ContainsFunc(passthroughs(), func(a string) bool { return ingress.Annotations[a] == "true" }) {
			at := slices.IndexFunc(ingress.Spec.TLS, func(t networkingv1.IngressTLS) bool { return slices.Contains(t.Hosts, rule.Host) })
			if at >= 0 {
				r.secret = ingress.Spec.TLS[at].SecretName
			}
			r.elsewhere = at >= 0 && r.secret == "" // the controller's own
		}
		all = append(all, r)
	}
	return all, nil
}

// fromRoute reads OpenShift's Route. Unless TLS passes through, the router's own certificate is seen, or that in the Route.
func fromRoute(o *unstructured.Unstructured) ([]route, error) {
	var spec struct {
		Spec struct {
			Host string
			To   struct{ Kind, Name string }
			TLS  *struct{ Termination string }
		}
	}
	if err := decode(o, &spec); err != nil {
		return nil, err
	}
	if spec.Spec.To.Name != ca.PrincipalService {
		return nil, nil
	}
	return []route{{host: spec.Spec.Host, elsewhere: spec.Spec.TLS != nil && spec.Spec.TLS.Termination != "passthrough"}}, nil
}

// fromGateway reads a TLSRoute, by which TLS passes through, or a GRPCRoute, before which the Gateway has ended it.
func fromGateway(o *unstructured.Unstructured) ([]route, error) {
	var spec struct {
		Spec struct {
			Hostnames []string
			Rules     []struct {
				BackendRefs []struct{ Name string }
			}
		}
	}
	if err := decode(o, &spec); err != nil {
		return nil, err
	}
	for _, rule := range spec.Spec.Rules {
		for _, to := range rule.BackendRefs {
			if to.Name != ca.PrincipalService {
				continue
			}
			var all []route
			for _, host := range spec.Spec.Hostnames {
				all = append(all, route{host: host, elsewhere: o.GetKind() == "GRPCRoute"})
			}
			return all, nil
		}
	}
	return nil, nil
}
