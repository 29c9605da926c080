package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

// agentSettings are what an operator decides. The names are those of the documentation of argocd-agent.
type agentSettings struct {
	kube      kube.Options
	namespace string
	sharing   sharingSettings

	serverAddress string
	serverPort    int
	operations    program.Operations

	credentials string
	tls         certs.Settings
	workload    certs.WorkloadAPI
	insecureTLS bool
	plaintext   bool
	policy      certs.Policy

	keepAlive, heartbeat, resyncEvery time.Duration

	access accessSettings
	guard  guard.Settings

	enrollment enrollmentSettings
	cluster    clusterSettings
}

func newCommand(environment []string) *cobra.Command {
	return program.New("agent", "Keep a spoke's Applications and those of the hub equal, and give the hub access to the spoke", environment, &agentSettings{}, run)
}

// Declare implements program.Settings.
func (s *agentSettings) Declare(set *settings.Set) {
	set.Own("ARGOCD_AGENT_", "ARGOCD_AGENT_PRINCIPAL_", "ARGOCD_AGENT_AGENT_") // those are argocd-agentctl's
	set.String(&s.kube.Kubeconfig, "kubeconfig", "", "", "path of a kubeconfig file, when not running in a pod", settings.File)
	set.String(&s.kube.Context, "kubecontext", "", "", "context in the kubeconfig file, if not its current one")
	set.String(&s.namespace, "namespace,n", "ARGOCD_AGENT_NAMESPACE", "argocd",
		"namespace of Argo CD on the spoke, whose applications are managed", settings.NonEmpty, settings.DNSLabel)
	s.sharing.declare(set)
	set.String(&s.serverAddress, "server-address", "ARGOCD_AGENT_REMOTE_SERVER", "", "host name of the principal",
		settings.NonEmpty, settings.Host)
	set.Int(&s.serverPort, "server-port", "ARGOCD_AGENT_REMOTE_PORT", 443, "port of the principal", settings.Port)
	s.operations.Declare(set, "ARGOCD_AGENT", 8181, 8002)
	s.operations.DeclareAuthorization(set, "ARGOCD_AGENT")
	set.String(&s.credentials, "creds", "ARGOCD_AGENT_CREDS", "mtls:any", "how the agent proves who it is: mtls:any, by its certificate; header:any, by its sidecar, with --insecure-plaintext; "+
		"jwt-svid:<audience>, by JWT-SVIDs of --spiffe-endpoint-socket, where a load balancer ends TLS",
		checkCredentials)
	set.Rule(func() error {
		if strings.HasPrefix(s.credentials, "header:") && !s.plaintext {
			return errors.New("a sidecar proves who the agent is only if it ends the agent's connection: set --insecure-plaintext")
		}
		if s.jwtAudience() != "" && (s.workload.Address() == "" || s.plaintext) {
			return errors.New("JWT-SVIDs come from the SPIFFE Workload API, and go over TLS only: set --spiffe-endpoint-socket, without --insecure-plaintext")
		}
		return nil
	}, "creds", "insecure-plaintext", "spiffe-endpoint-socket")
	s.tls.DeclarePair(set, certs.Flags{
		Files: []certs.Flag{
			{Name: "tls-client-cert", Variable: "ARGOCD_AGENT_TLS_CLIENT_CERT_PATH", Usage: "file of the agent's certificate, instead of the Secret"},
			{Name: "tls-client-key", Variable: "ARGOCD_AGENT_TLS_CLIENT_KEY_PATH", Usage: "file of the key of that certificate"},
		},
		Secret: certs.Flag{
			Name: "tls-secret-name", Variable: "ARGOCD_AGENT_TLS_SECRET_NAME", Usage: "Secret of the agent's certificate and key",
			Fallback: "argocd-agent-client-tls",
		},
		Hint: "create it with: argocd-agentctl pki issue agent",
	})
	s.tls.DeclareRoots(set, certs.Flags{
		Files: []certs.Flag{{Name: "root-ca-path", Variable: "ARGOCD_AGENT_TLS_ROOT_CA_PATH", Usage: "file of the principal's CA, instead of the Secret"}},
		Secret: certs.Flag{
			Name: "root-ca-secret-name", Variable: "ARGOCD_AGENT_TLS_ROOT_CA_SECRET_NAME", Usage: "Secret of the CA that the principal's certificate comes from",
			Fallback: "argocd-agent-ca",
		},
		Hint: "create it with: argocd-agentctl pki propagate",
	})
	s.workload.Declare(set)
	s.tls.Workload, s.tls.Plaintext = &s.workload, &s.plaintext
	s.tls.DeclareServerID(set, "ARGOCD_AGENT")
	set.Bool(&s.plaintext, "insecure-plaintext", "ARGOCD_AGENT_INSECURE_PLAINTEXT", false,
		"INSECURE: connect without TLS, through the sidecar of a service mesh, which proves who the agent is")
	set.Bool(&s.insecureTLS, "insecure-tls", "ARGOCD_AGENT_TLS_INSECURE", false, "INSECURE: trust any principal")
	s.policy.Declare(set, "ARGOCD_AGENT", "")
	set.Duration(&s.keepAlive, "keep-alive-ping-interval", "ARGOCD_AGENT_KEEP_ALIVE_PING_INTERVAL", 10*time.Second,
		"how often to see whether a quiet connection still works; at least 10s, 0 for never", settings.OffOrAtLeast(10*time.Second))
	set.Duration(&s.heartbeat, "heartbeat-interval", "ARGOCD_AGENT_HEARTBEAT_INTERVAL", 30*time.Second,
		"how often to say something on a quiet stream, for proxies that end quiet ones; at least 1s, 0 for never",
		settings.OffOrAtLeast(time.Second))
	set.Duration(&s.resyncEvery, "compare-interval", "ARGOCD_AGENT_COMPARE_INTERVAL", 5*time.Minute,
		"how often everything is compared with the hub, less up to half of it at random; at least 1s", settings.AtLeast(time.Second))
	s.access.read(set)
	s.declareEnrollment(set)
	s.cluster.declare(set)
	s.guard.Declare(set, "ARGOCD_AGENT")
}

// jwtSVID begins a value of --creds that is for JWT-SVIDs.
const jwtSVID = "jwt-svid:"

// jwtAudience is the audience of the agent's JWT-SVIDs, empty if it proves otherwise who it is.
func (s *agentSettings) jwtAudience() string {
	audience, _ := strings.CutPrefix(s.credentials, jwtSVID)
	if audience == s.credentials {
		return ""
	}
	return audience
}

// checkCredentials accepts "mtls:" or "header:" followed by anything, as the documentation of argocd-agent has it, and "jwt-svid:" followed by
// an audience.
func checkCredentials(value string) error {
	if strings.HasPrefix(value, "mtls:") || strings.HasPrefix(value, "header:") || strings.HasPrefix(value, jwtSVID) && value != jwtSVID {
		return nil
	}
	return fmt.Errorf("want mtls:any, header:any or jwt-svid:<audience>")
}
