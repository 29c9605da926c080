package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/xds/resources"
)

// xdsSettings are what an operator decides.
type xdsSettings struct {
	kube      kube.Options
	namespace string

	listenHost string
	listenPort int
	operations program.Operations

	tls      certs.Settings
	workload certs.WorkloadAPI
	policy   certs.Policy
	proxies  identity.Proxies
	clients  []string

	principals    string
	principalName string
	domain        string
	lookup        string
	envoyTLS      string
	maxUnknown    int
}

func newCommand(environment []string) *cobra.Command {
	return program.New("xds", "Tell Envoy and gRPC which principal holds the tunnel of which agent (xDS)", environment, &xdsSettings{}, run)
}

// Declare implements program.Settings.
func (s *xdsSettings) Declare(set *settings.Set) {
	set.Own("ARGOCD_XDS_")
	set.String(&s.listenHost, "listen-host", "ARGOCD_XDS_LISTEN_HOST", "", "address to listen on for xDS clients; all addresses if empty", settings.Host)
	set.Int(&s.listenPort, "listen-port", "ARGOCD_XDS_LISTEN_PORT", 18000, "port to listen on for xDS clients", settings.Port)
	s.operations.Declare(set, "ARGOCD_XDS", 8008, 8009)
	s.declareIdentity(set)
	s.declarePrincipals(set)
	set.String(&s.domain, "agent-domain", "ARGOCD_XDS_AGENT_DOMAIN", "agents.argocd-agent",
		"domain of agents in the :authority of requests: berlin is berlin.DOMAIN, and DOMAIN itself is any principal", settings.NonEmpty, settings.DNSSubdomain)
	set.String(&s.lookup, "route-lookup-service", "ARGOCD_XDS_ROUTE_LOOKUP_SERVICE", "passthrough:///argocd-agent-principal:8443",
		"gRPC target of the principals at which gRPC clients look up which of them holds an agent's tunnel (RLS); they go to any principal if it is empty; "+
			"with dns:/// in place of passthrough:/// gRPC looks for TXT records too", checkLookup)
	set.String(&s.envoyTLS, "envoy-tls", "ARGOCD_XDS_ENVOY_TLS", envoySecrets,
		"how Envoy secures its connections to principals: secrets, by the secrets "+envoyCertificate+" and "+envoyRoots+" of its bootstrap; sds:CLUSTER, by SPIRE's SDS "+
			"in a cluster of its bootstrap; or none", checkEnvoyTLS)
	set.Int(&s.maxUnknown, "max-unknown-hosts", "ARGOCD_XDS_MAX_UNKNOWN_HOSTS", 10_000,
		"how many hosts are kept that clients asked for and whose tunnel no principal holds; the oldest go first", settings.Positive)
}

// declareIdentity declares who xds is, and who its clients are.
func (s *xdsSettings) declareIdentity(set *settings.Set) {
	s.tls.DeclarePair(set, certs.Flags{
		Files: []certs.Flag{
			{Name: "tls-cert", Variable: "ARGOCD_XDS_TLS_CERT_PATH", Usage: "file of the certificate that clients and principals see"},
			{Name: "tls-key", Variable: "ARGOCD_XDS_TLS_KEY_PATH", Usage: "file of the key of that certificate"},
		},
		Required: true, Hint: "create it with: argocd-agentctl pki issue component",
	})
	s.tls.DeclareRoots(set, certs.Flags{
		Files:    []certs.Flag{{Name: "root-ca-path", Variable: "ARGOCD_XDS_TLS_ROOT_CA_PATH", Usage: "file of the CA that certificates of clients and principals come from"}},
		Required: true,
	})
	s.workload.Declare(set)
	s.tls.Workload, s.tls.Plaintext = &s.workload, &s.proxies.Local
	s.tls.DeclareServerID(set, "ARGOCD_XDS")
	s.proxies.Declare(set, "ARGOCD_XDS")
	s.policy.Declare(set, "ARGOCD_XDS", "tls1.3")
	set.Strings(&s.clients, "clients", "ARGOCD_XDS_CLIENTS", []string{"argocd-agent-kubeproxy", "argocd-agent-redisproxy"},
		"who may subscribe: the common names of client certificates, or their SPIFFE IDs", settings.Each(settings.NonEmpty))
	set.Rule(func() error {
		if len(s.clients) == 0 {
			return errors.New("want one at least")
		}
		for _, client := range s.clients {
			if isID(client) != isID(s.clients[0]) {
				return errors.New("want common names or SPIFFE IDs, and not some of each")
			}
		}
		if s.proxies.Any() && !isID(s.clients[0]) {
			return errors.New("who comes by a proxy is known by a SPIFFE ID: name such clients")
		}
		return nil
	}, "clients", "insecure-plaintext", "trusted-proxies")
}

// declarePrincipals declares how principals are found.
func (s *xdsSettings) declarePrincipals(set *settings.Set) {
	set.String(&s.principals, "principals", "ARGOCD_XDS_PRINCIPALS", "dns:argocd-agent-principal-peers:8443",
		"the principals of the hub, at addresses where clients reach them too: service:NAME for the EndpointSlices of a headless Service in the namespace, dns:HOST:PORT for "+
			"the addresses of a name, or HOST:PORT with commas between several", settings.NonEmpty, func(text string) error {
			_, err := peers.ParseAddresses(text)
			return err
		})
	set.String(&s.principalName, "principal-name", "ARGOCD_XDS_PRINCIPAL_NAME", "argocd-agent-principal",
		"DNS name that the certificate of each principal has, unless --principal-spiffe-id is set; and the NAME of xds:///NAME for gRPC clients", settings.NonEmpty,
		settings.Host)
	set.String(&s.kube.Kubeconfig, "kubeconfig", "", "", "path of a kubeconfig file, when not running in a pod; for service:NAME in --principals", settings.File)
	set.String(&s.kube.Context, "kubecontext", "", "", "context in the kubeconfig file, if not its current one")
	set.String(&s.namespace, "namespace,n", "ARGOCD_XDS_NAMESPACE", "argocd", "namespace of that Service", settings.NonEmpty, settings.DNSLabel)
}

// isID reports whether the name of a client is a SPIFFE ID.
func isID(name string) bool { return strings.Contains(name, "://") }

// subscribe is what a client may who is one.
const subscribe = "xds"

// identities returns what tells who a client is.
func (s *xdsSettings) identities() (*identity.Authenticator, error) {
	options := identity.Options{Auth: identity.DefaultAuth, Proxies: s.proxies, Components: make(identity.Components)}
	if isID(s.clients[0]) {
		options.Auth, options.Table = "spiffe:", func() identity.Table { return identity.Table{} }
	}
	for _, client := range s.clients {
		options.Components[client] = []string{subscribe}
	}
	return identity.New(options)
}

// Values of --envoy-tls, and the names that its secrets have.
const (
	envoySecrets = "secrets"
	envoySDS     = "sds:"
	envoyNone    = "none"

	envoyCertificate = "argocd-agent-client"
	envoyRoots       = "argocd-agent-ca"
	spireCertificate = "default"
	spireRoots       = "ALL"
)

// checkLookup accepts a gRPC target by which gRPC's clients can look up agents. A client that knows no such scheme refuses all that it is sent.
func checkLookup(target string) error {
	named, err := url.Parse(target)
	if target == "" || err == nil && named.Host == "" && len(named.Path) > 1 && (named.Scheme == "dns" || named.Scheme == "passthrough") {
		return nil
	}
	return errors.New("want passthrough:///HOST:PORT, dns:///HOST:PORT or nothing")
}

func checkEnvoyTLS(text string) error {
	if cluster, ok := strings.CutPrefix(text, envoySDS); text == envoySecrets || text == envoyNone || ok && cluster != "" {
		return nil
	}
	return fmt.Errorf("want %s, %sCLUSTER or %s", envoySecrets, envoySDS, envoyNone)
}

// envoy is how Envoy secures its connections to principals.
func (s *xdsSettings) envoy() resources.TLS {
	security := resources.TLS{Certificate: envoyCertificate, Roots: envoyRoots, Principal: s.principalName}
	if id := s.tls.ServerID(); !id.IsZero() {
		security.Principal = id.String()
	}
	if s.envoyTLS == envoyNone {
		return resources.TLS{}
	}
	if cluster, ok := strings.CutPrefix(s.envoyTLS, envoySDS); ok {
		security.SDS, security.Certificate, security.Roots = cluster, spireCertificate, spireRoots
	}
	return security
}
