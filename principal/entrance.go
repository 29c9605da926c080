package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/admission"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay"
)

// entrance is what admits agents and the hub's components.
type entrance struct {
	certificates *certs.Source // verify theirs, and are the principal's own
	admission    *admission.Admission
	authn        *authn.Authenticator
}

// entrance returns what admits agents and the hub's components. The directory learns who is blocked.
func (s *principalSettings) entrance(client kubernetes.Interface, clusterStore *clusters.Clusters, directory *relay.Directory,
	registry *prometheus.Registry, logger *slog.Logger,
) (*entrance, error) {
	certLogger := logging.Component(logger, "certificates")
	keyFound := func(where string) {
		certLogger.Warn("The CA's private key is where the principal reads it, so who takes over the principal can be any agent; "+
			"move that Secret to a namespace of its own, as argocd-agentctl pki init makes it", "secret", where)
	}
	certSource, err := s.tls.Source("principal", secret.Namespace{Client: client.CoreV1(), Name: s.namespace, KeyFound: keyFound},
		certLogger, certs.NewMetrics(registry))
	if err != nil {
		return nil, err
	}
	identify, err := identity.New(identity.Options{Auth: s.auth, Reserved: []string{s.namespace, argocd.InCluster}, Components: s.components})
	if err != nil {
		return nil, err
	}
	if unmatched := identify.Unmatched(); len(unmatched) > 0 {
		logger.Warn("Components of the hub cannot connect: they are named by a common name, and --auth reads URIs; name their URIs in --hub-components",
			"components", unmatched)
	}
	options := admission.Options{
		Client: client.CoreV1().RESTClient(), Namespace: s.namespace, Trust: certSource, Identify: identify,
		Blocked: directory.SetBlocked, Logger: logging.Component(logger, "blocklist"),
	}
	if s.requireCluster {
		options.HasCluster = clusterStore.Has
	}
	admitted := admission.New(options)
	clusterStore.Subscribe(admitted)
	return &entrance{certSource, admitted, authn.New(authn.Options{
		Identify: identify, Trust: admitted, Ready: awaitAll(admitted, clusterStore), Logger: logging.Component(logger, "agents"),
	})}, nil
}

// run follows who is admitted until the context ends.
func (e *entrance) run(ctx context.Context) { together(ctx, e.admission.Run, e.authn.Run) }
