package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/uplink"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/bounds"
)

// proxySettings are what an operator decides.
type proxySettings struct {
	listenHost string
	listenPort int
	operations program.Operations
	tls        certs.Settings

	redis     redisSettings
	principal uplink.Settings

	cacheSize    int // MiB
	agentTimeout time.Duration

	valueSize, valueMemory int // MiB
}

// redisSettings say how the hub's Redis is reached.
type redisSettings struct {
	address   string
	keyPrefix string
	tls       bool
	roots     certs.Settings
	insecure  bool
}

func newCommand(environment []string) *cobra.Command {
	return program.New("redisproxy", "Be Redis for argocd-server: the hub's own, and those of the spokes through the principal", environment, &proxySettings{}, run)
}

// Declare implements program.Settings.
func (s *proxySettings) Declare(set *settings.Set) {
	set.Own("ARGOCD_REDISPROXY_")
	set.String(&s.listenHost, "listen-host", "ARGOCD_REDISPROXY_LISTEN_HOST", "", "address to listen on for clients; all addresses if empty",
		settings.Host)
	set.Int(&s.listenPort, "listen-port", "ARGOCD_REDISPROXY_LISTEN_PORT", 6379, "port to listen on for clients", settings.Port)
	s.tls.DeclarePair(set, certs.Flags{Files: []certs.Flag{
		{Name: "tls-cert", Variable: "ARGOCD_REDISPROXY_TLS_SERVER_CERT_PATH", Usage: "file of the certificate that clients see; no TLS if empty"},
		{Name: "tls-key", Variable: "ARGOCD_REDISPROXY_TLS_SERVER_KEY_PATH", Usage: "file of the key of that certificate"},
	}})
	s.operations.Declare(set, "ARGOCD_REDISPROXY", 8006, 8007)
	set.Int(&s.cacheSize, "cache-size", "ARGOCD_REDISPROXY_CACHE_SIZE", 64, "how many MiB of agents' values to keep, 0 for none", settings.NonNegative)
	set.Duration(&s.agentTimeout, "agent-timeout", "ARGOCD_REDISPROXY_AGENT_TIMEOUT", 10*time.Second,
		"how long an agent may take to answer; at least 100ms", settings.AtLeast(100*time.Millisecond))
	set.Int(&s.valueSize, "max-value-size", "ARGOCD_REDISPROXY_MAX_VALUE_SIZE", bounds.DefaultSize>>20,
		"how many MiB a value of an agent's may inflate to; argocd-server holds all of it", settings.Positive)
	set.Int(&s.valueMemory, "max-value-memory", "ARGOCD_REDISPROXY_MAX_VALUE_MEMORY", bounds.DefaultMemory>>20,
		"how many MiB of memory a value of an agent's may take once argocd-server has decoded it; short texts become much", settings.Positive)
	s.redis.declare(set)
	s.principal.Declare(set, "ARGOCD_REDISPROXY")
}

// declare declares what concerns the hub's Redis.
func (r *redisSettings) declare(set *settings.Set) {
	set.String(&r.address, "redis-address", "ARGOCD_REDISPROXY_REDIS_ADDRESS", "argocd-redis:6379", "host:port of the hub's Redis",
		settings.HostPort)
	set.String(&r.keyPrefix, "redis-key-prefix", "ARGOCD_REDISPROXY_REDIS_KEY_PREFIX", "",
		"what the keys of the hub's Argo CD begin with: its ARGOCD_REDIS_KEY_PREFIX")
	set.Bool(&r.tls, "redis-tls-enabled", "ARGOCD_REDISPROXY_REDIS_TLS_ENABLED", false, "use TLS to the hub's Redis")
	r.roots.DeclareRoots(set, certs.Flags{Files: []certs.Flag{{
		Name: "redis-ca-path", Variable: "ARGOCD_REDISPROXY_REDIS_TLS_CA_PATH",
		Usage: "file of the CA that its certificate comes from; the operating system's if empty",
	}}})
	set.Bool(&r.insecure, "redis-tls-insecure", "ARGOCD_REDISPROXY_REDIS_TLS_INSECURE", false, "INSECURE: trust any Redis")
	set.Rule(func() error {
		if !r.tls && (r.roots.Configured() || r.insecure) {
			return errors.New("the CA and the trust in any Redis need TLS: set --redis-tls-enabled")
		}
		return nil
	}, "redis-tls-enabled", "redis-ca-path", "redis-tls-insecure")
}
