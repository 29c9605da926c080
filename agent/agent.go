package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/dialer"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/enrollment"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/spoke"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/spokeaccess"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/versions"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry/clientgo"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/jwtsvid"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/syncmetrics"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// name is what the agent is called in logs and on its spoke.
const name = "argocd-agent-agent"

// run runs an agent until the context ends.
func run(ctx context.Context, s *agentSettings, out io.Writer) error {
	base, err := program.Begin(program.Options{Name: name, Log: s.operations.Log, Output: out})
	if err != nil {
		return err
	}
	base.Libraries = append(base.Libraries, clientgo.Gatherer())
	s.kube.Program = name
	ctx, cluster, err := kube.Open(ctx, s.kube, base.Logger)
	if err != nil {
		return err
	}
	a, err := s.assemble(ctx, cluster, base.Registry, base.Logger)
	if err != nil {
		return err
	}
	s.operations.Authorize(kube.Authorize(cluster.Client))
	operations, err := s.operations.Serve(ctx, base,
		ops.When("applications", a.spoke.Ready), ops.When("certificate", a.certificates.Ready), ops.When("connection", a.dialer.Connected))
	if err != nil {
		return err
	}
	return a.run(ctx, operations)
}

// agent is the parts of an agent.
type agent struct {
	settings *agentSettings
	registry *prometheus.Registry
	logger   *slog.Logger

	certificates *certs.Source
	tokens       *jwtsvid.Credentials // nil if the agent does not prove by tokens who it is
	guard        *guard.Controller
	hub          hubIdentity
	spoke        *spoke.Spoke
	access       *spokeaccess.Access // nil if the hub may have none
	dialer       *dialer.Dialer
	enroller     *enrollment.Enroller // nil if certificates come from elsewhere
}

// assemble puts the parts of an agent together: data comes first, and then what reads it. Nothing runs yet.
func (s *agentSettings) assemble(ctx context.Context, cluster kube.Cluster, registry *prometheus.Registry, logger *slog.Logger) (*agent, error) {
	a := &agent{settings: s, registry: registry, logger: logger}
	metrics := certs.NewMetrics(registry)
	if s.jwtAudience() != "" {
		s.tls.WithoutPair()
	}
	var err error
	if a.certificates, err = s.tls.Source("agent", s.secrets(cluster), logging.Component(logger, "certificates"), metrics); err != nil {
		return nil, err
	}
	if err := a.share(cluster); err != nil {
		return nil, err
	}
	if a.access, err = s.open(cluster, a.spoke, registry, logger, metrics); err != nil {
		return nil, err
	}
	if a.enroller, err = s.enroller(cluster, a.certificates, metrics, registry, logger); err != nil {
		return nil, err
	}
	if audience := s.jwtAudience(); audience != "" {
		if a.tokens, err = jwtsvid.NewCredentials(ctx, s.workload.Address(), audience, logging.Component(logger, "connection")); err != nil {
			return nil, err
		}
	}
	a.dialer = a.newDialer(cluster)
	return a, nil
}

// newDialer returns what connects to the principal.
func (a *agent) newDialer(cluster kube.Cluster) *dialer.Dialer {
	s, logger := a.settings, logging.Component(a.logger, "connection")
	renewed, dialOptions := a.certificates.Changed, telemetry.DialOptions(a.registry)
	if a.tokens != nil {
		renewed, dialOptions = a.tokens.Renewed, append(dialOptions, grpc.WithPerRPCCredentials(a.tokens))
	}
	return dialer.New(dialer.Options{
		Address: net.JoinHostPort(s.serverAddress, strconv.Itoa(s.serverPort)),
		Credentials: certs.ClientCredentials(certs.ClientOptions{
			Source: a.certificates, Policy: s.policy, ServerID: s.tls.ServerID(), InsecureSkipVerify: s.insecureTLS,
		}),
		KeepAlive: s.keepAlive, Peer: a.spoke.Peer(), Tunnel: a.access.Tunnel(),
		Hello: s.hello(versions.New(cluster.Client, s.namespace, logger)), OnHello: a.hub.listener(a.spoke), Renewed: renewed,
		Dial: dialOptions, Registerer: a.registry, Logger: logger,
	})
}

// run runs all parts until the context ends.
func (a *agent) run(ctx context.Context, operations *ops.Server) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operations.Run(ctx) })
	group.Go(func() error { return a.certificates.Run(ctx) })
	group.Go(func() error { return a.enroller.Run(ctx) })
	if a.tokens != nil {
		group.Go(func() error {
			a.tokens.Run(ctx)
			_ = a.tokens.Close() // of a connection that was only read from
			return nil
		})
	}
	group.Go(func() error { a.spoke.Run(ctx); return nil })
	group.Go(func() error { return a.access.Run(ctx) })
	group.Go(func() error {
		a.guard.Run(ctx, func(_ string, f converge.Facet, token string) bool {
			return a.spoke.Peer().ConfirmDeletions(f, token)
		})
		return nil
	})
	group.Go(func() error {
		if a.spoke.Wait(ctx) && a.certificates.Wait(ctx) == nil {
			a.dialer.Run(ctx)
		}
		return nil
	})
	return group.Wait()
}

// share makes what of the spoke is shared with the hub, and what holds back deletions that look like an accident.
func (a *agent) share(cluster kube.Cluster) error {
	s, logger := a.settings, logging.Component(a.logger, "sync")
	selector, err := facets.ParseSelector(s.sharing.selector)
	if err != nil {
		return err
	}
	metrics := syncmetrics.NewSync("argocd_agent", a.registry, 1)
	a.guard = guard.New(guard.Options{
		Client: cluster.Client.CoreV1(), Namespace: s.namespace, Component: name, Logger: logging.Component(a.logger, "guard"),
	})
	a.spoke, err = spoke.New(spoke.Options{
		Config: cluster.Config, Namespace: s.namespace, ApplicationNamespace: s.sharing.applicationNamespace(s.namespace),
		Mode: facets.Mode(s.sharing.mode), Mapping: s.sharing.mapping(s.namespace), Selector: selector,
		AdoptionPolicy: s.sharing.adoptionPolicy(cluster.Client.CoreV1(), &a.hub), Agent: a.hub.agent,
		ClosedNamespace: s.sharing.closedNamespace(s.namespace), RefuseIntentSources: s.sharing.refuseIntentSources,
		OwnSecrets:  slices.Concat(s.tls.SecretNames(), s.access.redisTLS.SecretNames()),
		ResyncEvery: s.resyncEvery, Guard: func() converge.Guard { return s.guard.Limits }, Observer: a.guard.Observer("", metrics.Observer("", logger)),
		Reporter: facets.NewLogReporter(logger, kube.Events{Client: cluster.Client.CoreV1(), Component: name}.Warn, metrics.FailedWrite), Logger: logger,
	})
	if err != nil {
		return err
	}
	syncmetrics.Backlog("argocd_agent", a.registry, facets.Facets(), a.spoke.Peer().Backlog)
	return nil
}

// hello returns what makes the agent's hellos, with the spoke's versions as they are by then.
func (s *agentSettings) hello(spoke *versions.Finder) func(context.Context) wire.Hello {
	h := wire.NewHello()
	h.Build, h.Mode = version.Version(), s.sharing.mode
	h.Mapping, h.Selector = s.sharing.mapping(s.namespace).Name(), facets.CanonicalSelector(s.sharing.selector)
	h.Heartbeat = s.heartbeat.Milliseconds()
	s.cluster.tell(&h)
	return func(ctx context.Context) wire.Hello {
		found := spoke.Find(ctx)
		h.Kubernetes, h.ArgoCD = found.Kubernetes, found.ArgoCD
		return h
	}
}

// secrets returns the agent's own Secrets.
func (s *agentSettings) secrets(cluster kube.Cluster) certs.Secrets {
	return secret.Namespace{Client: cluster.Client.CoreV1(), Name: s.namespace}
}
