package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/dialer"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/spoke"
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

// run runs an agent until the context ends. It is the one place where its parts are put together.
func run(ctx context.Context, s *agentSettings, out io.Writer) error { //nolint:funlen // it is the wiring
	base, err := program.Begin(program.Options{Name: name, Log: s.operations.Log, Output: out})
	if err != nil {
		return err
	}
	base.Libraries = append(base.Libraries, clientgo.Gatherer())
	logger, registry := base.Logger, base.Registry
	s.kube.Program = name
	ctx, cluster, err := kube.Open(ctx, s.kube, logger)
	if err != nil {
		return err
	}
	metrics, certificates := syncmetrics.NewSync("argocd_agent", registry, 1), certs.NewMetrics(registry)
	if s.jwtAudience() != "" {
		s.tls.WithoutPair()
	}
	certSource, err := s.tls.Source("agent", s.secrets(cluster), logging.Component(logger, "certificates"), certificates)
	if err != nil {
		return err
	}
	deletionGuard := guard.New(guard.Options{
		Client: cluster.Client.CoreV1(), Namespace: s.namespace, Component: name, Logger: logging.Component(logger, "guard"),
	})
	var hub hubIdentity
	spokeState, err := s.share(cluster, &hub, metrics, deletionGuard.Observer("", metrics.Observer("", logging.Component(logger, "sync"))),
		logging.Component(logger, "sync"))
	if err != nil {
		return err
	}
	syncmetrics.Backlog("argocd_agent", registry, facets.Facets(), spokeState.Peer().Backlog)
	access, err := s.open(cluster, spokeState, registry, logger, certificates)
	if err != nil {
		return err
	}
	renewed, dialOptions := certSource.Changed, telemetry.DialOptions(registry)
	var tokens *jwtsvid.Credentials
	if audience := s.jwtAudience(); audience != "" {
		tokens, err = jwtsvid.NewCredentials(ctx, s.workload.Address(), audience, logging.Component(logger, "connection"))
		if err != nil {
			return err
		}
		defer func() { _ = tokens.Close() }() // of a connection that was only read from
		renewed, dialOptions = tokens.Renewed, append(dialOptions, grpc.WithPerRPCCredentials(tokens))
	}
	principal := dialer.New(dialer.Options{
		Address:     net.JoinHostPort(s.serverAddress, strconv.Itoa(s.serverPort)),
		Credentials: certs.ClientCredentials(certs.ClientOptions{Source: certSource, Policy: s.policy, ServerID: s.tls.ServerID(), InsecureSkipVerify: s.insecureTLS}),
		KeepAlive:   s.keepAlive, Peer: spokeState.Peer(), Tunnel: access.Tunnel(), Hello: s.hello(versions.New(cluster.Client, s.namespace, logging.Component(logger, "connection"))), OnHello: hub.listener(spokeState), Renewed: renewed,
		Dial: dialOptions, Registerer: registry, Logger: logging.Component(logger, "connection"),
	})
	enroller, err := s.enroller(cluster, certSource, certificates, registry, logger)
	if err != nil {
		return err
	}
	s.operations.Authorize(kube.Authorize(cluster.Client))
	operations, err := s.operations.Serve(ctx, base,
		ops.When("applications", spokeState.Ready), ops.When("certificate", certSource.Ready), ops.When("connection", principal.Connected))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operations.Run(ctx) })
	group.Go(func() error { return certSource.Run(ctx) })
	group.Go(func() error { return enroller.Run(ctx) })
	if tokens != nil {
		group.Go(func() error { tokens.Run(ctx); return nil })
	}
	group.Go(func() error { spokeState.Run(ctx); return nil })
	group.Go(func() error { return access.Run(ctx) })
	group.Go(func() error {
		deletionGuard.Run(ctx, func(_ string, f converge.Facet, token string) bool {
			return spokeState.Peer().ConfirmDeletions(f, token)
		})
		return nil
	})
	group.Go(func() error {
		if spokeState.Wait(ctx) && certSource.Wait(ctx) == nil {
			principal.Run(ctx)
		}
		return nil
	})
	return group.Wait()
}

// share returns what of the spoke is shared with the hub.
func (s *agentSettings) share(cluster kube.Cluster, hub *hubIdentity, metrics *syncmetrics.Sync, observer converge.Observer, logger *slog.Logger,
) (*spoke.Spoke, error) {
	selector, err := facets.ParseSelector(s.sharing.selector)
	if err != nil {
		return nil, err
	}
	return spoke.New(spoke.Options{
		Config: cluster.Config, Namespace: s.namespace, ApplicationNamespace: s.sharing.applicationNamespace(s.namespace),
		Mode: facets.Mode(s.sharing.mode), Mapping: s.sharing.mapping(s.namespace), Selector: selector,
		AdoptionPolicy: s.sharing.adoptionPolicy(cluster.Client.CoreV1(), hub), Agent: hub.agent,
		ClosedNamespace: s.sharing.closedNamespace(s.namespace), RefuseIntentSources: s.sharing.refuseIntentSources,
		OwnSecrets:  slices.Concat(s.tls.SecretNames(), s.access.redisTLS.SecretNames()),
		ResyncEvery: s.resyncEvery, Guard: func() converge.Guard { return s.guard.Limits }, Observer: observer,
		Reporter: facets.NewLogReporter(logger, kube.Events{Client: cluster.Client.CoreV1(), Component: name}.Warn, metrics.FailedWrite), Logger: logger,
	})
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
