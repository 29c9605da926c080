package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry/clientgo"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/syncmetrics"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/hub"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/registration"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

// name is what the principal is called in logs and on the hub.
const name = "argocd-agent-principal"

// run runs a principal until the context ends.
func run(ctx context.Context, s *principalSettings, out io.Writer) error {
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
	p, err := s.assemble(cluster, base.Registry, base.Logger)
	if err != nil {
		return err
	}
	p.introduce()
	base.Views = map[string]http.Handler{presence.Path: presence.Handler(status(replicaName(s.podName), p.directory.Presence, p.sessions.Sessions))}
	s.operations.Authorize(kube.Authorize(cluster.Client))
	operations, err := s.operations.Serve(ctx, base, p.ready()...)
	if err != nil {
		return err
	}
	return p.run(ctx, operations)
}

// principal is the parts of a principal.
type principal struct {
	settings *principalSettings
	registry *prometheus.Registry
	logger   *slog.Logger
	metrics  *syncmetrics.Sync

	clusters  *clusters.Clusters
	identity  *hub.Identity
	roster    *peers.Roster
	directory *relay.Directory
	entrance  *entrance
	issuer    issuer
	others    *peers.Peers
	hub       *hub.Hub
	guard     *guard.Controller
	registrar *registration.Registrar // nil if agents do not register themselves
	sessions  *sessions.Service
	relay     *relay.Relay
}

// assemble puts the parts of a principal together: data comes first, and then what reads it. Nothing runs yet.
func (s *principalSettings) assemble(cluster kube.Cluster, registry *prometheus.Registry, logger *slog.Logger) (*principal, error) {
	client := cluster.Client
	p := &principal{
		settings: s, registry: registry, logger: logger, metrics: syncmetrics.NewSync("argocd_principal", registry, s.metricsAgents),
		clusters: clusters.New(client.CoreV1().RESTClient(), s.namespace, logging.Component(logger, "clusters")),
		identity: hub.NewIdentity(client.CoreV1(), s.namespace, logging.Component(logger, "hub")), roster: s.newRoster(),
	}
	p.directory = relay.NewDirectory(s.sharing.mapping(s.namespace).HubNamespace, p.roster)
	var err error
	if p.entrance, err = s.entrance(client, p.clusters, p.directory, registry, logger); err != nil {
		return nil, err
	}
	if p.issuer, err = s.issuer(cluster, p.entrance, registry, logger); err != nil {
		return nil, err
	}
	if p.others, err = s.follow(client, p.entrance, p.roster, p.directory.Left, registry, logger); err != nil {
		return nil, err
	}
	if p.hub, err = s.share(cluster, p.clusters, p.directory, p.roster, p.metrics, logging.Component(logger, "hub")); err != nil {
		return nil, err
	}
	p.guard = s.deletionGuard(client, p.clusters, p.roster, logger)
	if p.registrar, err = s.registrar(client, p.clusters, p.entrance, registry, logger); err != nil {
		return nil, err
	}
	p.sessions = p.newSessions()
	syncmetrics.Backlog("argocd_principal", registry, facets.Facets(), p.sessions.Backlog)
	p.relay = relay.New(relay.Options{Authn: p.entrance.authn, Directory: p.directory, Roster: p.roster, Peer: p.others.Conn, Registerer: registry})
	registry.MustRegister(p.shutdownMetric())
	return p, nil
}

// deletionGuard returns what holds back deletions that look like an accident.
func (s *principalSettings) deletionGuard(client kubernetes.Interface, clusterStore *clusters.Clusters, roster *peers.Roster, logger *slog.Logger,
) *guard.Controller {
	return guard.New(guard.Options{
		Client: client.CoreV1(), Namespace: s.namespace, Component: name, Logger: logging.Component(logger, "guard"),
		Shared: &guard.Shared{
			Elsewhere: func(agent string) bool { return roster.HeldElsewhere(peers.Session, agent) },
			Wait:      clusterStore.Wait,
			Known: func(agent string) bool {
				_, connected := roster.Held(peers.Session, agent)
				return connected || clusterStore.Has(agent)
			},
		},
	})
}

// newSessions returns what serves the sessions of agents.
func (p *principal) newSessions() *sessions.Service {
	s, known := p.settings, []readiness{p.hub, p.identity, p.clusters}
	if p.registrar != nil {
		known = append(known, p.registrar)
	}
	return sessions.New(sessions.Options{
		Authn: p.entrance.authn, Roster: p.roster, Ready: awaitAll(known...), Modes: facets.Modes(), Register: registers(p.registrar),
		Knows: p.hub.Knows, Mode: p.clusters.Mode, OtherCluster: p.clusters.Other, Hello: func() wire.Hello { return s.hello(p.identity.UID()) },
		PerSecond: s.limits.sessions,
		Share: p.hub.Sharing(s.resyncEvery, func(agent string) converge.Observer {
			return p.guard.Observer(agent, p.metrics.Observer(agent, logging.Component(p.logger, "sync").With("agent", agent)))
		}),
		Budget: func(agent string) *converge.Budget {
			return s.limits.budget(agent, logging.Component(p.logger, "agents"))
		},
		HasCluster: p.clusters.Has, Forget: p.hub.Forget, Drain: func() time.Duration { return p.drainTime() / 2 },
		Registerer: p.registry, Logger: logging.Component(p.logger, "agents"),
	})
}

// introduce has parts learn of what others find out. It comes before anything runs.
func (p *principal) introduce() {
	p.clusters.Subscribe(p.directory)
	p.clusters.Subscribe(p.hub)
	p.clusters.Subscribe(p.sessions)
	p.clusters.Subscribe(p.guard)
	p.hub.Subscribe(p.sessions)
	p.roster.Subscribe(func(kind peers.Kind, agent string) {
		if kind == peers.Session {
			p.hub.ConnectionChanged(agent)
		}
	})
}

// ready is that of all parts.
func (p *principal) ready() []ops.Check {
	checks := append(p.entrance.ready(),
		ops.When("applications", p.hub.Ready), ops.When("identity", p.identity.Ready), ops.When("clusters", p.clusters.Ready))
	if p.registrar != nil {
		checks = append(checks, ops.When("registration", p.registrar.Ready))
	}
	return append(append(checks, ops.When("shutdown", p.staying)), p.issuer.ready()...)
}

// shutdownMetric says whether the principal shuts down.
func (p *principal) shutdownMetric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argocd_principal_draining", Help: "1 while the principal shuts down and waits for its agents to go elsewhere and for requests to end, otherwise 0.",
	}, func() float64 {
		if p.roster.Draining() {
			return 1
		}
		return 0
	})
}

// staying returns an error once the principal shuts down: no agent is to be led here any more.
func (p *principal) staying() error {
	if p.roster.Draining() {
		return errors.New("the principal is shutting down")
	}
	return nil
}

// run runs all parts until the context ends, and what is served has ended.
func (p *principal) run(ctx context.Context, operations *ops.Server) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, end := context.WithCancel(ctx)
	defer end()
	work := []func(context.Context){
		p.entrance.run, p.clusters.Run, p.hub.Run, p.identity.Run,
		func(ctx context.Context) { p.guard.Run(ctx, p.sessions.ConfirmDeletions) },
	}
	if p.registrar != nil {
		work = append(work, p.registrar.Run)
	}
	group, running := errgroup.WithContext(running)
	defer context.AfterFunc(running, end)() // one part that fails ends all
	group.Go(func() error { return operations.Run(running) })
	group.Go(func() error { return p.entrance.certificates.Run(running) })
	if p.entrance.tokens != nil {
		group.Go(func() error { return p.entrance.tokens.Run(running) })
	}
	group.Go(func() error { together(running, work...); return nil })
	group.Go(func() error { return p.issuer.run(running) })
	group.Go(func() error { return p.settings.enroll(running, p.issuer, p.entrance.certificates, p.logger) })
	group.Go(func() error {
		defer stop()
		return p.serve(serving)
	})
	return group.Wait()
}

// together runs parts of the principal until all have returned.
func together(ctx context.Context, parts ...func(context.Context)) {
	var work sync.WaitGroup
	for _, part := range parts {
		work.Go(func() { part(ctx) })
	}
	work.Wait()
}

// share returns what of the hub is shared with agents.
func (s *principalSettings) share(cluster kube.Cluster, clusterStore *clusters.Clusters, directory hub.Directory, roster *peers.Roster, metrics *syncmetrics.Sync,
	logger *slog.Logger,
) (*hub.Hub, error) {
	selector, err := facets.ParseSelector(s.sharing.selector)
	if err != nil {
		return nil, err
	}
	rules, err := s.sharing.mirrorRules()
	if err != nil {
		return nil, err
	}
	return hub.New(hub.Options{
		Config: cluster.Config, API: cluster.Client.CoreV1().RESTClient(), Namespace: s.namespace, Mapping: s.sharing.mapping(s.namespace), Selector: selector,
		CreateNamespace: s.sharing.creator(cluster.Client.CoreV1()).Create, Clusters: clusterStore, MirrorRules: rules,
		Guard:    func(agent string) converge.Guard { return clusterStore.Guard(agent, s.guard.Limits) },
		Reporter: facets.NewLogReporter(logger, kube.Events{Client: cluster.Client.CoreV1(), Component: name}.Warn, metrics.FailedWrite),
		Warn:     kube.Events{Client: cluster.Client.CoreV1(), Component: name}.Warn,
		Session: func(agent string) (string, bool) {
			held, ok := roster.Held(peers.Session, agent)
			return held.Mode, ok
		},
		Leads:     roster.Leads,
		Directory: directory, Logger: logger,
	})
}

// hello is the principal's, of the hub that is known by that.
func (s *principalSettings) hello(hub string) wire.Hello {
	h := wire.NewHello()
	h.Build, h.Hub = version.Version(), hub
	h.Mapping, h.Selector = s.sharing.mapping(s.namespace).Name(), facets.CanonicalSelector(s.sharing.selector)
	return h
}

// readiness is that of a part of the principal.
type readiness interface {
	// Wait waits until the part is ready, and reports whether that came before the end of the context.
	Wait(ctx context.Context) bool
	// Ready returns nil once the part is ready, and otherwise why it is not.
	Ready() error
}

// awaitAll returns what waits until all parts are ready, and returns why one is not when the context ends before.
func awaitAll(parts ...readiness) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, part := range parts {
			if part.Wait(ctx) {
				continue
			}
			if err := part.Ready(); err != nil {
				return err
			}
		}
		return nil
	}
}
