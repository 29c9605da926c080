package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/xds/routes"
)

// name is what xds is called in logs.
const name = "argocd-agent-xds"

const (
	// keepAlive is how soon a principal, or a client, that is gone without a word is noticed.
	keepAlive = 10 * time.Second
	// maxConnections is how many clients may be connected: the proxies of a hub, and Envoys beside them. All Pods of a Deployment have one certificate.
	maxConnections, maxOfCertificate = 2000, 500
	// minPing is how soon after another ping one may come. Envoys send one every ten seconds; gRPC's own limit is five minutes.
	minPing = 5 * time.Second
	// maxStreams is how many streams one connection may have. A client needs one.
	maxStreams = 100
)

// run runs an xds until the context ends. It is the one place where its parts are put together.
func run(ctx context.Context, s *xdsSettings, out io.Writer) error {
	base, err := program.Begin(program.Options{Name: name, Log: s.operations.Log, Output: out})
	if err != nil {
		return err
	}
	logger, registry := base.Logger, base.Registry
	certificates, err := s.tls.Source("xds", nil, logging.Component(logger, "certificates"), certs.NewMetrics(registry))
	if err != nil {
		return err
	}
	identify, err := s.identities()
	if err != nil {
		return err
	}
	clients := authn.New(authn.Options{Identify: identify, Trust: identity.Verified(certificates, nil), Logger: logging.Component(logger, "clients")})
	roster := peers.NewRoster(peers.Self{Name: name}, nil) // it holds nothing itself
	principals, err := s.follow(ctx, certificates, roster, registry, logging.Component(logger, "principals"))
	if err != nil {
		return err
	}
	table, err := routes.NewTable(routes.TableOptions{
		Domain: s.domain, Listener: s.principalName, Lookup: s.lookup, Version: rand.Text()[:8] + ".", Envoy: s.envoy(), MaxStrangers: s.maxUnknown,
	})
	if err != nil {
		return err
	}
	follower := routes.NewFollower(roster, principals, table, logging.Component(logger, "routes"))
	discovery := routes.NewServer(ctx, table, registry, logging.Component(logger, "clients"))
	base.Views = map[string]http.Handler{routes.DumpPath: routes.Dump(table, discovery)}
	operations, err := s.operations.Serve(ctx, base, ops.When("certificate", certificates.Ready), ops.When("principals", follower.Ready))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operations.Run(ctx) })
	group.Go(func() error { return certificates.Run(ctx) })
	group.Go(func() error { clients.Run(ctx); return nil })
	group.Go(func() error { principals.Run(ctx); return nil })
	group.Go(func() error { follower.Run(ctx); return nil })
	group.Go(func() error {
		server := s.newServer(certificates, clients, registry) //nolint:contextcheck // each stream has its own
		discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, discovery)
		return s.serve(ctx, server, follower.Published(), logger)
	})
	return group.Wait()
}

// follow returns what follows the principals.
func (s *xdsSettings) follow(ctx context.Context, certificates *certs.Source, roster *peers.Roster, registry prometheus.Registerer, logger *slog.Logger,
) (*peers.Peers, error) {
	addresses, err := peers.ParseAddresses(s.principals)
	if err != nil {
		return nil, err
	}
	endpoints, err := s.endpoints(ctx, addresses, logger)
	if err != nil {
		return nil, err
	}
	secure := certs.ClientCredentials(certs.ClientOptions{Source: certificates, Policy: s.policy, ServerID: s.tls.ServerID()})
	return peers.New(peers.Options{
		Roster:    roster,
		Addresses: func(ctx context.Context, report func([]string)) { addresses.Follow(ctx, endpoints, report, logger) },
		Dial: func(address string) (*grpc.ClientConn, error) {
			return grpc.NewClient(address, append(tunnel.DialOptions(), grpc.WithTransportCredentials(secure), grpc.WithAuthority(s.principalName),
				grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAlive}))...)
		},
		Prefix: "argocd_xds", Registerer: registry, Logger: logger,
	}), nil
}

// endpoints returns what follows the EndpointSlices of a Service. Nothing of Kubernetes is used unless a Service is to be followed.
func (s *xdsSettings) endpoints(ctx context.Context, addresses peers.Addresses, logger *slog.Logger) (peers.Endpoints, error) {
	if !addresses.OfService() {
		return nil, nil //nolint:nilnil // none are followed
	}
	s.kube.Program = name
	_, cluster, err := kube.Open(ctx, s.kube, logger)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, service, port string, report func([]string)) {
		follow.Endpoints(ctx, cluster.Client.DiscoveryV1().EndpointSlices(s.namespace), service, port, report)
	}, nil
}

// newServer returns a gRPC server for clients only.
func (s *xdsSettings) newServer(certificates *certs.Source, clients *authn.Authenticator, registry prometheus.Registerer) *grpc.Server {
	secure := connlimit.Credentials(certs.ServerCredentials(certs.ServerOptions{Source: certificates, Policy: s.policy}))
	return grpc.NewServer(append(append(telemetry.ServerOptions(registry), transport()...),
		grpc.Creds(secure),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
			ctx, end, err := clients.Admit(stream.Context(), subscribe)
			if err != nil {
				return err
			}
			defer end()
			// go-control-plane waits for the client only. When this returns, gRPC ends the stream, and with it what serves it.
			served := make(chan error, 1)
			go func() { served <- serve(server, stream) }()
			select {
			case err = <-served:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))...)
}

// transport is how clients are served, whatever secures that.
func transport() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepAlive, Timeout: keepAlive}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
}

// serve serves clients until the context ends, from when it is known which agents there are.
func (s *xdsSettings) serve(ctx context.Context, server *grpc.Server, published <-chan struct{}, logger *slog.Logger) error {
	select {
	case <-published:
	case <-ctx.Done():
		return nil
	}
	listener, err := s.proxies.Listen(ctx, net.JoinHostPort(s.listenHost, strconv.Itoa(s.listenPort)), logger)
	if err != nil {
		return err
	}
	logger.Info("Listening for xDS clients", "address", listener.Addr().String())
	limit := connlimit.New(connlimit.Options{Total: maxConnections, Setting: "the number of clients", PerCertificate: maxOfCertificate, Logger: logger})
	stopped := context.AfterFunc(ctx, server.Stop) // clients keep what they have, and connect elsewhere
	defer stopped()
	if err := server.Serve(limit.Listen(listener)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve xDS clients: %w", err)
	}
	return nil
}
