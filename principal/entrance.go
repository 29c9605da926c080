package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/jwtsvid"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/admission"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/identities"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay"
)

// entrance is what admits agents and the hub's components.
type entrance struct {
	certificates *certs.Source // verify theirs, and are the principal's own
	metrics      *certs.Metrics
	identities   *identities.Identities // nil if agents are not known by their SPIFFE IDs
	tokens       *jwtsvid.Verifier      // nil if no JWT-SVIDs are taken
	admission    *admission.Admission
	authn        *authn.Authenticator
	identify     *identity.Authenticator
	isReady      func(context.Context) error // waits until it is known who is refused
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
	metrics := certs.NewMetrics(registry)
	certSource, err := s.tls.Source("principal", secret.Namespace{Client: client.CoreV1(), Name: s.namespace, KeyFound: keyFound},
		certLogger, metrics)
	if err != nil {
		return nil, err
	}
	e := &entrance{certificates: certSource, metrics: metrics}
	identifies := identity.Options{
		Auth: s.auth, TrustDomain: s.trustDomain, Proxies: s.proxies, Reserved: []string{s.namespace, argocd.InCluster}, Components: s.components,
	}
	known := []readiness{clusterStore}
	if s.jwtAudience != "" {
		e.tokens = jwtsvid.NewVerifier(jwtsvid.Options{
			Socket: s.workload.Address(), Audience: s.jwtAudience, Changed: func() { e.admission.Recheck() }, Logger: logging.Component(logger, "identities"),
		})
		identifies.Tokens, known = e.tokens, append(known, e.tokens)
	}
	if strings.HasPrefix(s.auth, "spiffe:") {
		e.identities = identities.New(identities.Options{
			Client: client.CoreV1().RESTClient(), Namespace: s.namespace, Changed: func() { e.admission.Recheck() }, Logger: logging.Component(logger, "identities"),
		})
		identifies.Table, known = e.identities.Table, append(known, e.identities)
	}
	identify, err := identity.New(identifies)
	if err != nil {
		return nil, err
	}
	if unmatched := identify.Unmatched(); len(unmatched) > 0 {
		logger.Warn("Components of the hub cannot connect: they are named by a common name, and --auth reads URIs; name their URIs in --hub-components",
			"components", unmatched)
	}
	options := admission.Options{
		Client: client.CoreV1().RESTClient(), Namespace: s.namespace, Trust: identity.Verified(certSource, identifies.Tokens), Identify: identify,
		Blocked: directory.SetBlocked, Logger: logging.Component(logger, "blocklist"),
	}
	if s.requireCluster {
		options.HasCluster = clusterStore.Has
	}
	e.admission = admission.New(options)
	clusterStore.Subscribe(e.admission)
	e.identify, e.isReady = identify, awaitAll(append(known, e.admission)...)
	e.authn = authn.New(authn.Options{
		Identify: identify, Trust: e.admission, Ready: e.isReady, Logger: logging.Component(logger, "agents"),
	})
	return e, nil
}

// run follows who is admitted until the context ends.
func (e *entrance) run(ctx context.Context) {
	parts := []func(context.Context){e.admission.Run, e.authn.Run}
	if e.identities != nil {
		parts = append(parts, e.identities.Run)
	}
	together(ctx, parts...)
}

// ready is that of who is admitted, and of the certificate.
func (e *entrance) ready() []ops.Check {
	checks := []ops.Check{ops.When("certificate", e.certificates.Ready), ops.When("blocklist", e.admission.Ready)}
	if e.identities != nil {
		checks = append(checks, ops.When("identities", e.identities.Ready))
	}
	if e.tokens != nil {
		checks = append(checks, ops.When("JWT bundles", e.tokens.Ready))
	}
	return checks
}
