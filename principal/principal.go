package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry/clientgo"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/syncmetrics"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/hub"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

const (
	// drain is how long streams and handshakes may take to end.
	drain = 15 * time.Second
	// linger is how long connections may take to end once no stream is left. Agents have the reason by then; gRPC waits for each
	// to acknowledge a ping, which takes seconds when thousands of them connect elsewhere at the same time.
	linger = time.Second
)

// maxIdle is how long a connection without any stream is kept. An agent's has one for as long as it works, and so has a component's.
const maxIdle = 5 * time.Minute

// maxStreams is how many streams may be open over one connection. A component of the hub has one for each tunnel connection to
// any spoke. Agents are held to less, see authn.MaxStreams.
const maxStreams = 50_000

// name is what the principal is called in logs and on the hub.
const name = "argocd-agent-principal"

// run runs a principal until the context ends. It is the one place where its parts are put together.
func run(ctx context.Context, s *principalSettings, out io.Writer) error { //nolint:funlen // it is the wiring
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
	client := cluster.Client
	metrics := syncmetrics.NewSync("argocd_principal", registry, s.metricsAgents)
	hubIdentity := hub.NewIdentity(client.CoreV1(), s.namespace, logging.Component(logger, "hub"))
	// Data comes first, and then what reads it.
	clusterStore := clusters.New(client.CoreV1().RESTClient(), s.namespace, logging.Component(logger, "clusters"))
	roster := s.newRoster()
	directory := relay.NewDirectory(s.sharing.mapping(s.namespace).HubNamespace, roster)
	entrance, err := s.entrance(client, clusterStore, directory, registry, logger)
	if err != nil {
		return err
	}
	issuer, err := s.issuer(cluster, entrance, registry, logger)
	if err != nil {
		return err
	}
	others, err := s.follow(client, entrance, roster, registry, logger)
	if err != nil {
		return err
	}
	hubState, err := s.share(cluster, clusterStore, directory, roster, metrics, logging.Component(logger, "hub"))
	if err != nil {
		return err
	}
	deletionGuard := guard.New(guard.Options{
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
	registrar, err := s.registrar(client, clusterStore, entrance, registry, logger)
	if err != nil {
		return err
	}
	known, work := []readiness{hubState, hubIdentity, clusterStore}, []func(context.Context){entrance.run, clusterStore.Run, hubState.Run, hubIdentity.Run}
	if registrar != nil {
		known, work = append(known, registrar), append(work, registrar.Run)
	}
	service := sessions.New(sessions.Options{
		Authn: entrance.authn, Roster: roster, Ready: awaitAll(known...), Modes: facets.Modes(), Register: registers(registrar),
		Knows: hubState.Knows, Mode: clusterStore.Mode, OtherCluster: clusterStore.Other, Hello: func() wire.Hello { return s.hello(hubIdentity.UID()) },
		Share: hubState.Sharing(s.resyncEvery, func(agent string) converge.Observer {
			return deletionGuard.Observer(agent, metrics.Observer(agent, logging.Component(logger, "sync").With("agent", agent)))
		}),
		Budget: func(agent string) *converge.Budget {
			return s.limits.budget(agent, logging.Component(logger, "agents"))
		},
		HasCluster: clusterStore.Has, Forget: hubState.Forget,
		Registerer: registry, Logger: logging.Component(logger, "agents"),
	})
	syncmetrics.Backlog("argocd_principal", registry, facets.Facets(), service.Backlog)
	relayService := relay.New(relay.Options{Authn: entrance.authn, Directory: directory, Roster: roster, Peer: others.Conn, Registerer: registry})
	peerService := peers.NewService(roster, entrance.authn.Admit, relayService.AcceptFor)
	lookup := peers.NewLookup(roster, entrance.authn.Admit, string(tunnel.Kube), string(tunnel.Redis))
	// All listeners subscribe before anything runs.
	clusterStore.Subscribe(directory)
	clusterStore.Subscribe(hubState)
	clusterStore.Subscribe(service)
	clusterStore.Subscribe(deletionGuard)
	hubState.Subscribe(service)
	roster.Subscribe(func(kind peers.Kind, agent string) {
		if kind == peers.Session {
			hubState.ConnectionChanged(agent)
		}
	})
	base.Views = map[string]http.Handler{presence.Path: presence.Handler(status(replicaName(s.podName), directory.Presence, service.Sessions))}
	s.operations.Authorize(kube.Authorize(cluster.Client))
	ready := append(entrance.ready(),
		ops.When("applications", hubState.Ready), ops.When("identity", hubIdentity.Ready), ops.When("clusters", clusterStore.Ready))
	if registrar != nil {
		ready = append(ready, ops.When("registration", registrar.Ready))
	}
	operations, err := s.operations.Serve(ctx, base, append(ready, issuer.ready()...)...)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operations.Run(ctx) })
	group.Go(func() error { return entrance.certificates.Run(ctx) })
	if entrance.tokens != nil {
		group.Go(func() error { return entrance.tokens.Run(ctx) })
	}
	group.Go(func() error {
		confirm := func(ctx context.Context) { deletionGuard.Run(ctx, service.ConfirmDeletions) }
		together(ctx, append(work, confirm)...)
		return nil
	})
	group.Go(func() error { return issuer.run(ctx) })
	group.Go(func() error { return s.enroll(ctx, issuer, entrance.certificates, logger) })
	server := s.newServer(ctx, entrance.certificates, telemetry.ServerOptions(registry), withRenewal(services(service, relayService, peerService, lookup), issuer))
	group.Go(func() error { return s.serve(ctx, server, logger, service.Run, relayService.Run, others.Run) })
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

// services returns what registers the gRPC services.
func services(service *sessions.Service, relayService *relay.Relay, peerService *peers.Service, lookup *peers.Lookup) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		syncv1.RegisterSyncServer(r, service)
		tunnelv1.RegisterTunnelServer(r, relayService)
		tunnelv1.RegisterRelayServer(r, relayService)
		peerv1.RegisterPeerServer(r, peerService)
		lookup.Register(r)
	}
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

// newServer returns a gRPC server with these services.
func (s *principalSettings) newServer(ctx context.Context, certSource *certs.Source, options []grpc.ServerOption, register func(grpc.ServiceRegistrar),
) *grpc.Server {
	secure := certs.ServerCredentials(certs.ServerOptions{Source: certSource, Policy: s.policy, ClientCertOptional: s.jwtAudience != ""})
	server := grpc.NewServer(append(s.transport(), append(options, sessions.ServerOptions(ctx, secure)...)...)...)
	register(server)
	return server
}

// serve serves agents, and components of the hub, until the context ends. Then the parts that serve end their streams, and it
// stops the server.
func (s *principalSettings) serve(ctx context.Context, server *grpc.Server, logger *slog.Logger, parts ...func(context.Context)) error {
	listener, err := s.proxies.Listen(ctx, net.JoinHostPort(s.listenHost, strconv.Itoa(s.listenPort)), logging.Component(logger, "agents"))
	if err != nil {
		return err
	}
	logger.Info("Listen for agents", "address", listener.Addr().String())
	listener = s.limits.listen(listener, logging.Component(logger, "agents"))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve agents: %w", err)
		}
		return nil
	})
	streams := make(chan struct{}) // closed when all are over
	group.Go(func() error {
		defer close(streams)
		together(ctx, parts...)
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		stop(server, streams)
		return nil
	})
	return group.Wait()
}

// stop stops a server whose streams are ending. What does not end in time, such as a port scanner's handshake, is cut.
func stop(server *grpc.Server, streams <-chan struct{}) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	cut := time.NewTimer(drain)
	defer cut.Stop()
	for {
		select {
		case <-streams:
			cut.Reset(linger)
			streams = nil
		case <-cut.C:
			server.Stop()
			<-stopped
			return
		case <-stopped:
			return
		}
	}
}

// transport is how agents are served, whatever secures that.
func (s *principalSettings) transport() []grpc.ServerOption {
	return append(tunnel.ServerOptions(),
		grpc.ForceServerCodecV2(relay.NewCodec(wire.NewCodec())),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(drain),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: maxIdle}),
		grpc.KeepaliveEnforcementPolicy(s.enforcement()),
	)
}

// enforcement says how often an agent may ask whether its connection still works.
func (s *principalSettings) enforcement() keepalive.EnforcementPolicy {
	// gRPC takes 0 for its default, which is five minutes. Nobody can ask more often than this.
	return keepalive.EnforcementPolicy{MinTime: max(s.keepAliveMin, time.Nanosecond), PermitWithoutStream: true}
}
