package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/uplink"
)

// proxySettings are what an operator decides.
type proxySettings struct {
	listenHost string
	listenPort int
	operations program.Operations

	tls    certs.Settings
	policy certs.Policy

	proxies identity.Proxies
	callers identity.Callers
	jwtKey  string
	timeout time.Duration
	// maxResponse and maxMemory are in MiB.
	maxResponse, maxMemory int

	metricsAgents  int
	maxConnections int

	principal uplink.Settings
}

func newCommand(environment []string) *cobra.Command {
	return program.New("kubeproxy", "Be the API server of every spoke for argocd-server and kubectl, through the principal", environment, &proxySettings{}, run)
}

// Declare implements program.Settings.
func (s *proxySettings) Declare(set *settings.Set) {
	set.Own("ARGOCD_KUBEPROXY_")
	set.String(&s.listenHost, "listen-host", "ARGOCD_KUBEPROXY_LISTEN_HOST", "", "address to listen on for callers; all addresses if empty",
		settings.Host)
	set.Int(&s.listenPort, "listen-port", "ARGOCD_KUBEPROXY_LISTEN_PORT", 9090, "port to listen on for callers", settings.Port)
	s.operations.Declare(set, "ARGOCD_KUBEPROXY", 8004, 8005)
	set.Int(&s.metricsAgents, "metrics-agents", "ARGOCD_KUBEPROXY_METRICS_AGENTS", 1000,
		"how many agents have series of their own in argocd_kubeproxy_requests_total; requests to others are counted without a name",
		settings.NonNegative)
	set.Int(&s.maxConnections, "max-connections", "ARGOCD_KUBEPROXY_MAX_CONNECTIONS", 20_000,
		"how many connections of callers there may be that have authenticated; more are refused; a quarter as many handshakes may be in progress besides", settings.Positive)
	s.declareCallers(set)
	s.principal.Declare(set, "ARGOCD_KUBEPROXY")
}

// declareCallers declares what concerns those who ask.
func (s *proxySettings) declareCallers(set *settings.Set) {
	s.tls.DeclarePair(set, certs.Flags{
		Files: []certs.Flag{
			{Name: "tls-cert", Variable: "ARGOCD_KUBEPROXY_TLS_SERVER_CERT_PATH", Usage: "file of the certificate that callers see"},
			{Name: "tls-key", Variable: "ARGOCD_KUBEPROXY_TLS_SERVER_KEY_PATH", Usage: "file of the key of that certificate"},
		},
		Required: true,
		Hint:     "mount the Secret argocd-agent-resource-proxy-tls, or create it with: argocd-agentctl pki issue resource-proxy",
	})
	s.tls.DeclareRoots(set, certs.Flags{
		Files: []certs.Flag{{
			Name: "root-ca-path", Variable: "ARGOCD_KUBEPROXY_TLS_SERVER_ROOT_CA_PATH", Usage: "file of the CA that callers' certificates come from",
		}},
		Required: true,
	})
	s.tls.Workload, s.tls.Plaintext = s.principal.Workload(), &s.proxies.Local
	s.proxies.Declare(set, "ARGOCD_KUBEPROXY")
	s.policy.Declare(set, "ARGOCD_KUBEPROXY", "tls1.3")
	var callers []string
	set.Strings(&callers, "callers", "ARGOCD_KUBEPROXY_CALLERS", identity.DefaultCallers(),
		"which callers may reach which agents, as ID=REACH: an ID is the SPIFFE ID of a certificate, in which {agent} stands for an agent's name; REACH is "+
			"{agent} for that one, token for the one that a bearer token is for, * for every agent, or an agent's name; several agents are told apart by the path /agents/NAME/")
	set.Rule(func() (err error) {
		s.callers, err = identity.ParseCallers(callers)
		return err
	}, "callers")
	set.String(&s.jwtKey, "jwt-key", "ARGOCD_KUBEPROXY_JWT_KEY_PATH", "",
		"file or folder of the keys that bearer tokens are verified with, private or public; bearer tokens are refused if empty")
	set.Duration(&s.timeout, "request-timeout", "ARGOCD_KUBEPROXY_REQUEST_TIMEOUT", time.Minute,
		"how long an agent may take to begin its answer, except to a watch, log, exec, attach or port-forward; at least 1s",
		settings.AtLeast(time.Second))
	set.Int(&s.maxResponse, "max-response-size", "ARGOCD_KUBEPROXY_MAX_RESPONSE_SIZE", 256,
		"how many MiB an agent's answer may have, except to a watch, log, exec, attach or port-forward, 0 for any number; argocd-server holds all of it",
		settings.NonNegative)
	set.Int(&s.maxMemory, "max-response-memory", "ARGOCD_KUBEPROXY_MAX_RESPONSE_MEMORY", 512,
		"how many MiB of memory such an answer of an agent's may take once argocd-server has decoded it, 0 for any number", settings.NonNegative)
}
