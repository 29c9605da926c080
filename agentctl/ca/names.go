package ca

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// Names of the Services by which the hub's programs are reached within its cluster.
const (
	PrincipalService     = "argocd-agent-principal"
	resourceProxyService = "argocd-agent-resource-proxy"
	RedisProxyService    = "argocd-agent-redis-proxy"
	redisService         = "argocd-redis" // Argo CD's
	xdsService           = "argocd-agent-xds"
)

// Secrets of certificates.
const (
	PrincipalSecret     = "argocd-agent-principal-tls"
	ResourceProxySecret = "argocd-agent-resource-proxy-tls"
	RedisProxySecret    = "argocd-redis-proxy-tls"
	RedisSecret         = "argocd-redis-tls"
	xdsSecret           = "argocd-agent-xds-tls"
	AgentSecret         = "argocd-agent-client-tls"
)

// componentPrefix begins the common names of the hub's components, which the principal's --hub-components lists.
const componentPrefix = "argocd-agent-"

// ExtraNames are names and addresses of a server besides those of its Service.
type ExtraNames struct {
	Names     []string
	Addresses []net.IP
}

// Principal is the certificate that agents, and the hub's components, see.
func Principal(namespace string, o ExtraNames) Certificate {
	c := server(PrincipalSecret, PrincipalService, namespace, o)
	c.Peer = true
	return c
}

// ResourceProxy is the certificate that Argo CD sees when it asks for what is on a spoke: kubeproxy's.
func ResourceProxy(namespace string, o ExtraNames) Certificate {
	return server(ResourceProxySecret, resourceProxyService, namespace, o)
}

// RedisProxy is the certificate that Argo CD sees when it uses redisproxy by TLS.
func RedisProxy(namespace string, o ExtraNames) Certificate {
	return server(RedisProxySecret, RedisProxyService, namespace, o)
}

// XDS is the certificate that clients of xds see, and by which the principal knows it.
func XDS(namespace string, o ExtraNames) Certificate {
	c := server(xdsSecret, xdsService, namespace, o)
	c.Peer = true
	return c
}

// Redis is the certificate of Argo CD's Redis, or that of redisproxy if it is for its Secret.
func Redis(secretName, namespace string, o ExtraNames) Certificate {
	service := redisService
	if secretName == RedisProxySecret {
		service = RedisProxyService
	}
	return server(secretName, service, namespace, o)
}

// server is a server's certificate. It always has the names of its Service, which clients within the cluster use: users
// think of the external names only.
func server(secretName, service, namespace string, o ExtraNames) Certificate {
	names := []string{service, service + "." + namespace, service + "." + namespace + ".svc", service + "." + namespace + ".svc.cluster.local"}
	for _, name := range o.Names {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return Certificate{SecretName: secretName, CommonName: service, Names: names, Addresses: o.Addresses}
}

// Agent is the certificate by which the principal knows an agent.
func Agent(name string) Certificate {
	return Certificate{SecretName: AgentSecret, CommonName: name}
}

// Components lists the hub's components, which the principal lets reach every agent.
func Components() []string { return []string{"kubeproxy", "redisproxy"} }

// Component is the certificate by which the principal knows a component of the hub.
func Component(name string) (Certificate, error) {
	if !slices.Contains(Components(), name) {
		return Certificate{}, fmt.Errorf("component %q: unknown: use one of %s", name, strings.Join(Components(), ", "))
	}
	return Certificate{SecretName: componentSecret(name), CommonName: componentPrefix + name}, nil
}

// componentSecret returns the name of the Secret of a component's certificate.
func componentSecret(name string) string { return componentPrefix + name + "-tls" }

// IsComponent reports whether a certificate of that common name is a component's, which no agent's may be.
func IsComponent(common string) bool {
	name, ok := strings.CutPrefix(common, componentPrefix)
	return ok && (name == "principal" || name == "xds" || slices.Contains(Components(), name))
}
