package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/registration"
)

// registrationSettings are what an operator decides about agents that register themselves.
type registrationSettings struct {
	enabled             bool
	secret, proxy       string
	modes               []string
	labels, annotations []string
	most                int
}

// declareRegistration declares the settings.
func (s *principalSettings) declareRegistration(set *settings.Set) {
	r := &s.registration
	set.Bool(&r.enabled, "enable-self-cluster-registration", "ARGOCD_PRINCIPAL_ENABLE_SELF_CLUSTER_REGISTRATION", false,
		"make the cluster Secret of an agent that connects, if the hub has none, and keep it up to date; without --self-registration-client-cert-secret it "+
			"has no key, and the sidecar of Argo CD proves who it is")
	set.String(&r.secret, "self-registration-client-cert-secret", "ARGOCD_PRINCIPAL_SELF_REGISTRATION_CLIENT_CERT_SECRET", "",
		"Secret, with tls.crt, tls.key and ca.crt, of the client certificate that the cluster Secrets of agents share that register themselves; kubeproxy's setting --callers says what it reaches",
		settings.DNSSubdomain)
	set.String(&r.proxy, "resource-proxy-address", "ARGOCD_PRINCIPAL_RESOURCE_PROXY_ADDRESS", argocd.DefaultResourceProxy,
		"host:port of kubeproxy, as Argo CD reaches it, for the cluster Secrets of agents that register themselves", settings.HostPort)
	set.Strings(&r.modes, "self-registration-modes", "ARGOCD_PRINCIPAL_SELF_REGISTRATION_MODES", []string{string(facets.Managed)},
		"modes in which agents may register themselves: managed, autonomous", settings.Each(settings.OneOf(facets.Modes()...)))
	set.Strings(&r.labels, "self-registration-allowed-labels", "ARGOCD_PRINCIPAL_SELF_REGISTRATION_ALLOWED_LABELS", nil,
		"labels of its cluster that an agent may choose, as globs of keys; ApplicationSets deploy by them", argocd.CheckKeys)
	set.Strings(&r.annotations, "self-registration-allowed-annotations", "ARGOCD_PRINCIPAL_SELF_REGISTRATION_ALLOWED_ANNOTATIONS", nil,
		"annotations of its cluster that an agent may choose, as globs of keys", argocd.CheckKeys)
	set.Int(&r.most, "max-self-registered-clusters", "ARGOCD_PRINCIPAL_MAX_SELF_REGISTERED_CLUSTERS", 1000,
		"how many clusters may have registered themselves; more are refused; 0 for no limit", settings.NonNegative)
	set.Rule(func() error {
		if r.enabled && s.requireCluster {
			return errors.New("one makes the cluster Secret that the other asks for, so deleting it would shut nobody out: set one of the two; " +
				"argocd-agentctl agent block shuts out an agent")
		}
		return nil
	}, "enable-self-cluster-registration", "require-cluster-secret")
	set.Rule(func() error {
		if !r.enabled && (r.secret != "" || len(r.labels)+len(r.annotations) > 0) {
			return errors.New("agents do not register themselves: set --enable-self-cluster-registration too")
		}
		return nil
	}, "enable-self-cluster-registration", "self-registration-client-cert-secret", "self-registration-allowed-labels", "self-registration-allowed-annotations")
}

// registrar returns what makes the cluster Secrets of agents that register themselves, nil if they do not.
func (s *principalSettings) registrar(client kubernetes.Interface, clusterStore *clusters.Clusters, e *entrance, registry prometheus.Registerer,
	logger *slog.Logger,
) (*registration.Registrar, error) {
	r := &s.registration
	if !r.enabled {
		return nil, nil //nolint:nilnil // there is none
	}
	rules, err := registration.NewRules(r.labels, r.annotations)
	if err != nil {
		return nil, err
	}
	logger = logging.Component(logger, "registration")
	options := registration.Options{
		Secrets: client.CoreV1().Secrets(s.namespace), Reader: client.CoreV1().RESTClient(), Namespace: s.namespace, Clusters: clusterStore,
		Proxy: r.proxy, Modes: r.modes, Rules: rules, Most: r.most, Registerer: registry, Logger: logger,
	}
	if r.secret != "" {
		options.Source = registration.NewSource(registration.SourceOptions{
			Client: client.CoreV1().RESTClient(), Namespace: s.namespace, Name: r.secret, Identify: e.identify, Metrics: e.metrics, Logger: logger,
		})
	}
	return registration.New(options), nil
}

// registers returns what is called for each agent that connects.
func registers(r *registration.Registrar) func(context.Context, string, wire.Hello) error {
	if r == nil {
		return nil
	}
	return func(ctx context.Context, agent string, theirs wire.Hello) error {
		return r.Register(ctx, agent, registration.Declared{
			Mode: theirs.Mode, Keys: argocd.ClusterKeys{Labels: theirs.ClusterLabels, Annotations: theirs.ClusterAnnotations},
		})
	}
}
