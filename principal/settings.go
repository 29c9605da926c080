package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// principalSettings are what an operator decides. The names are those of the documentation of argocd-agent.
type principalSettings struct {
	kube      kube.Options
	namespace string
	podName   string

	listenHost string
	listenPort int
	operations program.Operations

	auth, trustDomain                       string
	jwtAudience                             string
	proxies                                 identity.Proxies
	requireCluster                          bool
	components                              identity.Components
	tls                                     certs.Settings
	workload                                certs.WorkloadAPI
	policy                                  certs.Policy
	sharing                                 sharingSettings
	keepAliveMin, resyncEvery, drainTimeout time.Duration
	metricsAgents                           int
	limits                                  limitSettings
	guard                                   guard.Settings
	enrollment                              enrollmentSettings
	registration                            registrationSettings
	peers                                   string
}

func newCommand(environment []string) *cobra.Command {
	return program.New("principal", "Serve agents and the hub's components: keep the hub's Applications and those of the spokes equal", environment, &principalSettings{}, run)
}

// Declare implements program.Settings.
func (s *principalSettings) Declare(set *settings.Set) {
	set.Own("ARGOCD_PRINCIPAL_")
	set.String(&s.kube.Kubeconfig, "kubeconfig", "", "", "path of a kubeconfig file, when not running in a pod", settings.File)
	set.String(&s.kube.Context, "kubecontext", "", "", "context in the kubeconfig file, if not its current one")
	set.String(&s.namespace, "namespace,n", "ARGOCD_PRINCIPAL_NAMESPACE", "argocd",
		"namespace of Argo CD on the hub, which holds the principal's Secrets", settings.NonEmpty, settings.DNSLabel)
	set.String(&s.listenHost, "listen-host", "ARGOCD_PRINCIPAL_LISTEN_HOST", "", "address to listen on for agents; all addresses if empty",
		settings.Host)
	set.Int(&s.listenPort, "listen-port", "ARGOCD_PRINCIPAL_LISTEN_PORT", 8443, "port to listen on for agents", settings.Port)
	s.operations.Declare(set, "ARGOCD_PRINCIPAL", 8000, 8003)
	s.operations.DeclareAuthorization(set, "ARGOCD_PRINCIPAL")
	s.declareIdentities(set)
	s.declareComponents(set)
	set.Bool(&s.requireCluster, "require-cluster-secret", "ARGOCD_PRINCIPAL_REQUIRE_CLUSTER_SECRET", false,
		"refuse agents that have no cluster Secret; deleting it shuts an agent out")
	s.tls.DeclarePair(set, certs.Flags{
		Files: []certs.Flag{
			{Name: "tls-cert", Variable: "ARGOCD_PRINCIPAL_TLS_SERVER_CERT_PATH", Usage: "file of the principal's certificate, instead of the Secret"},
			{Name: "tls-key", Variable: "ARGOCD_PRINCIPAL_TLS_SERVER_KEY_PATH", Usage: "file of the key of that certificate"},
		},
		Secret: certs.Flag{
			Name: "tls-secret-name", Variable: "ARGOCD_PRINCIPAL_TLS_SECRET_NAME", Usage: "Secret of the principal's certificate and key",
			Fallback: "argocd-agent-principal-tls",
		},
		Hint: "create it with: argocd-agentctl pki issue principal",
	})
	s.tls.DeclareRoots(set, certs.Flags{
		Files: []certs.Flag{{Name: "root-ca-path", Variable: "ARGOCD_PRINCIPAL_TLS_SERVER_ROOT_CA_PATH", Usage: "file of the agents' CA, instead of the Secret"}},
		Secret: certs.Flag{
			Name: "tls-ca-secret-name", Variable: "ARGOCD_PRINCIPAL_TLS_SERVER_ROOT_CA_SECRET_NAME",
			Usage: "Secret of the CA that agents' certificates come from", Fallback: "argocd-agent-ca",
		},
		Hint: "create it with: argocd-agentctl pki init",
	})
	s.workload.Declare(set)
	s.tls.Workload, s.tls.Plaintext = &s.workload, &s.proxies.Local
	s.policy.Declare(set, "ARGOCD_PRINCIPAL", "tls1.3")
	s.declareEnrollment(set)
	s.declareRegistration(set)
	s.declarePeers(set)
	set.Duration(&s.keepAliveMin, "keepalive-min-interval", "ARGOCD_PRINCIPAL_KEEP_ALIVE_MIN_INTERVAL", 5*time.Second,
		"drop agents that send keep-alive pings more often than this; 0 for no limit", settings.NonNegative)
	set.Duration(&s.drainTimeout, "drain-timeout", "ARGOCD_PRINCIPAL_DRAIN_TIMEOUT", 20*time.Second,
		"how long a principal that is told to stop waits for agents to connect to another one, and for logs, terminals and other requests through it to end; "+
			"0 to end all at once, as it is without --peers; the Pod's termination grace period has to be longer by 10s", settings.OffOrAtLeast(time.Second))
	set.Duration(&s.resyncEvery, "compare-interval", "ARGOCD_PRINCIPAL_COMPARE_INTERVAL", 5*time.Minute,
		"how often everything is compared with the agents, less up to half of it at random; at least 1s", settings.AtLeast(time.Second))
	set.String(&s.podName, "pod-name", "POD_NAME", "", "what /agents and argocd-agentctl call this replica; the host name if empty, which in a Pod is the Pod's")
	set.Int(&s.metricsAgents, "metrics-agents", "ARGOCD_PRINCIPAL_METRICS_AGENTS", 1000,
		"how many agents have series of their own in argocd_principal_sync_guarded_deletions; deletions of others are added up without a name",
		settings.NonNegative)
	s.limits.declare(set)
	s.guard.Declare(set, "ARGOCD_PRINCIPAL")
	s.sharing.declare(set)
}

// declareIdentities declares how agents and components prove who they are.
func (s *principalSettings) declareIdentities(set *settings.Set) {
	set.String(&s.auth, "auth", "ARGOCD_PRINCIPAL_AUTH", identity.DefaultAuth,
		"where an agent's name is in what it proves: mtls:subject:<regexp>, mtls:uri:<regexp> or header:x-forwarded-client-cert:<regexp>, whose first "+
			"group is the name; or SPIFFE IDs such as spiffe://{trustDomain}/ns/argocd/sa/argocd-agent/agent/{agent}, with commas between several, beside those in the "+
			"ConfigMap argocd-agent-identities; or spiffe: for those alone", identity.CheckAuth)
	set.String(&s.trustDomain, "trust-domain", "ARGOCD_PRINCIPAL_TRUST_DOMAIN", "",
		"what {trustDomain} means in --auth; with header: in --auth, the one trust domain of all agents and components", settings.DNSSubdomain)
	set.String(&s.jwtAudience, "jwt-svid-audience", "ARGOCD_PRINCIPAL_JWT_SVID_AUDIENCE", "",
		"take JWT-SVIDs for this audience from agents that come without a client certificate, because a load balancer ends their TLS; "+
			"with --spiffe-endpoint-socket and SPIFFE IDs in --auth")
	set.Rule(func() error {
		if s.jwtAudience != "" && (s.workload.Address() == "" || !strings.HasPrefix(s.auth, "spiffe:")) {
			return errors.New("JWT-SVIDs name SPIFFE IDs, and are verified by the SPIFFE Workload API: set --spiffe-endpoint-socket, and SPIFFE IDs in --auth")
		}
		return nil
	}, "jwt-svid-audience", "auth", "spiffe-endpoint-socket")
	s.proxies.Declare(set, "ARGOCD_PRINCIPAL")
	set.Rule(func() error {
		_, err := identity.New(identity.Options{Auth: s.auth, TrustDomain: s.trustDomain})
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(s.auth, "header:") && !s.proxies.Any():
			return errors.New("nobody is believed what the header says: set --insecure-plaintext, or --trusted-proxies")
		case strings.HasPrefix(s.auth, "mtls:") && s.proxies.Any():
			return errors.New("who comes by a proxy is not known by mtls: name agents by spiffe: or header: in --auth")
		}
		return nil
	}, "auth", "trust-domain", "insecure-plaintext", "trusted-proxies")
}

// declareComponents declares who on the hub may reach every agent.
func (s *principalSettings) declareComponents(set *settings.Set) {
	var entries []string
	set.Strings(&entries, "hub-components", "ARGOCD_PRINCIPAL_HUB_COMPONENTS",
		[]string{"argocd-agent-kubeproxy=" + string(tunnel.Kube), "argocd-agent-redisproxy=" + string(tunnel.Redis), name + "=" + peers.Target, "argocd-agent-xds=" + peers.TargetRoster},
		"the hub's own components, and what each may dial at every agent, as NAME=kube or NAME=redis; NAME=peer for the principals, which know each "+
			"other by it, and NAME=roster for who may know which principal serves which agent; "+
			"a name is that of the certificate: its URI if --auth reads URIs, else its common name")
	set.Rule(func() (err error) {
		s.components, err = identity.ParseComponents(entries, []string{string(tunnel.Kube), string(tunnel.Redis), peers.Target, peers.TargetRoster})
		return err
	}, "hub-components")
}
