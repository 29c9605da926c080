package main

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/redis"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/spoke"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/spokeaccess"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// accessSettings are what an operator decides about the hub's access to the spoke's own services.
type accessSettings struct {
	enabled    bool
	policyName string
	redis      redis.Access
	keyPrefix  string
	redisTLS   certs.Settings
}

// read declares the settings.
func (s *accessSettings) read(set *settings.Set) {
	set.Bool(&s.enabled, "enable-resource-proxy", "ARGOCD_AGENT_ENABLE_RESOURCE_PROXY", true,
		"whether the hub may reach this cluster's resources, logs and terminals, as far as the policy goes")
	set.String(&s.policyName, "policy-configmap-name", "ARGOCD_AGENT_POLICY_CONFIGMAP_NAME", "argocd-agent-policy",
		"ConfigMap with what the hub may do", settings.NonEmpty, settings.DNSSubdomain)
	set.String(&s.redis.Address, "redis-addr", "REDIS_ADDR", "argocd-redis:6379", "address of Argo CD's Redis", settings.HostPort)
	set.String(&s.redis.Username, "redis-username", "REDIS_USERNAME", "", "user in Redis")
	set.String(&s.redis.Password, "redis-password", "REDIS_PASSWORD", "", "password in Redis; better given by the environment or a folder")
	set.String(&s.redis.Folder, "redis-creds-dir-path", "REDIS_CREDS_DIR_PATH", "",
		"folder with the files auth_username and auth, instead of user and password")
	set.String(&s.keyPrefix, "redis-key-prefix", "ARGOCD_REDIS_KEY_PREFIX", "", "what all keys of Argo CD in Redis begin with")
	set.Bool(&s.redis.TLS, "redis-tls-enabled", "ARGOCD_AGENT_REDIS_TLS_ENABLED", false, "whether Redis speaks TLS")
	s.redisTLS.DeclareRoots(set, certs.Flags{
		Files: []certs.Flag{{
			Name: "redis-tls-ca-path", Variable: "ARGOCD_AGENT_REDIS_TLS_CA_PATH", Usage: "file of the CA that Redis' certificate comes from, instead of the Secret",
		}},
		Secret: certs.Flag{
			Name: "redis-tls-ca-secret-name", Variable: "ARGOCD_AGENT_REDIS_TLS_CA_SECRET_NAME", Usage: "Secret of that CA", Fallback: "argocd-redis-tls",
		},
		Hint: "see --redis-tls-ca-secret-name",
	})
	set.Bool(&s.redis.InsecureSkipVerify, "redis-tls-insecure", "ARGOCD_AGENT_REDIS_TLS_INSECURE", false, "INSECURE: trust any Redis")
	set.Rule(func() error {
		if s.redis.Folder != "" && (s.redis.Username != "" || s.redis.Password != "") {
			return errors.New("set the folder or the two others")
		}
		return nil
	}, "redis-creds-dir-path", "redis-username", "redis-password")
}

// open returns what gives the hub access, nil if it may have none.
func (s *agentSettings) open(cluster kube.Cluster, shared *spoke.Spoke, registry *prometheus.Registry, logger *slog.Logger,
	metrics *certs.Metrics,
) (*spokeaccess.Access, error) {
	if !s.access.enabled {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	access := s.access.redis
	if access.TLS && !access.InsecureSkipVerify {
		var err error
		if access.Roots, err = s.access.redisTLS.Source("redis", s.secrets(cluster), logging.Component(logger, "certificates"), metrics); err != nil {
			return nil, err
		}
	}
	return spokeaccess.New(spokeaccess.Options{
		Cluster: cluster, Namespace: s.namespace, PolicyName: s.access.policyName, Redis: access, KeyPrefix: s.access.keyPrefix,
		Shared: shared.Has, Unshared: shared.Unshared(), Reshared: shared.Reshared(), ToHub: shared.ToHub(), Registerer: registry, Logger: logger,
	})
}
