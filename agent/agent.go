package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/dialer"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/spoke"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/brake"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/telemetry"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/version"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/wire"
)

// run runs an agent until the context ends. It is the one place where its parts are put together.
func run(ctx context.Context, s *agentSettings, out io.Writer) error {
	s.log.Output = out
	logger, err := logging.New(s.log)
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(logging.Component(logger, "kubernetes").Handler()))
	logger.Info("Agent", "version", version.Version(), "revision", version.Revision())
	config, err := kube.Config(kube.Options{
		Kubeconfig: s.kube.Kubeconfig, Context: s.kube.Context, UserAgent: "argocd-agent-agent/" + version.Version(),
	})
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kubernetes client: %w", err)
	}
	registry := ops.NewRegistry(version.Version(), version.Revision())
	metrics := telemetry.NewSync("argocd_agent", registry)
	material, err := certs.New(s.certificates(client, logger, certs.NewMetrics(registry)))
	if err != nil {
		return err
	}
	desk := brake.New(brake.Options{
		Client: client.CoreV1(), Namespace: s.namespace, Component: "argocd-agent-agent", Logger: logging.Component(logger, "brake"),
	})
	applications, err := spoke.New(spoke.Options{
		Config: config, Namespace: s.namespace, Mapping: mapping.ByNamespace{Spoke: s.namespace},
		CompareEvery: s.compareEvery, Observer: desk.Observer("", metrics.Observer("", logging.Component(logger, "sync"))),
	})
	if err != nil {
		return err
	}
	telemetry.Backlog("argocd_agent", registry, facets.FromSpoke, applications.Peer().Backlog)
	principal := dialer.New(dialer.Options{
		Address: net.JoinHostPort(s.serverAddress, strconv.Itoa(s.serverPort)), Dial: s.dialOptions(material),
		Peer: applications.Peer(), Hello: s.hello(), Renewed: material.Changed,
		Registerer: registry, Logger: logging.Component(logger, "connection"),
	})
	operations, err := s.operations(ctx, registry, logger, applications, material, principal)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operations.Run(ctx) })
	group.Go(func() error { return material.Run(ctx) })
	group.Go(func() error { applications.Run(ctx); return nil })
	group.Go(func() error { applications.Peer().Run(ctx); return nil })
	group.Go(func() error {
		desk.Run(ctx, func(_ string, f converge.Facet, word string) bool { return applications.Peer().Release(f, word) })
		return nil
	})
	group.Go(func() error {
		if waitFor(ctx, applications.Synced()) && material.Wait(ctx) == nil {
			principal.Run(ctx)
		}
		return nil
	})
	return group.Wait()
}

// operations returns what serves health, metrics and profiles.
func (s *agentSettings) operations(ctx context.Context, registry *prometheus.Registry, logger *slog.Logger,
	applications *spoke.Spoke, material *certs.Source, principal *dialer.Dialer,
) (*ops.Server, error) {
	return ops.New(ctx, ops.Options{
		Health: ops.Port("--healthz-port", s.healthPort), Metrics: ops.Port("--metrics-port", s.metricsPort),
		Profiles: ops.LoopbackPort("--pprof-port", s.pprofPort), Registry: registry, Logger: logger,
		Checks: []ops.Check{
			{Name: "applications", Ready: func(context.Context) error { return applications.Ready() }},
			{Name: "certificate", Ready: func(context.Context) error { _, err := material.Current(); return err }},
			{Name: "connection", Ready: func(context.Context) error { return principal.Connected() }},
		},
	})
}

// waitFor reports whether done was closed before the context ended.
func waitFor(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *agentSettings) hello() wire.Hello {
	h := wire.NewHello()
	h.Build, h.Mode, h.Mapping = version.Version(), s.mode, mapping.ByNamespaceName
	h.Heartbeat = s.heartbeat.Milliseconds()
	return h
}

func (s *agentSettings) dialOptions(material *certs.Source) []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(certs.ClientCredentials(certs.ClientOptions{
			Source: material, Policy: s.policy, InsecureSkipVerify: s.insecureTLS,
		})),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())),
		// The dialer decides when to try again.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		}),
	}
	if s.keepAlive > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: s.keepAlive, Timeout: s.keepAlive}))
	}
	return options
}

// certificates says where the agent's certificate and the principal's authority are.
func (s *agentSettings) certificates(client kubernetes.Interface, logger *slog.Logger, metrics *certs.Metrics) certs.Options {
	o := certs.Options{
		Name:        "agent",
		Pair:        certs.PairSecret(client.CoreV1(), s.namespace, s.certSecret),
		PairRemedy:  "create it with: argocd-agentctl pki issue agent",
		Roots:       certs.RootsSecret(client.CoreV1(), s.namespace, s.caSecret),
		RootsRemedy: "create it with: argocd-agentctl pki propagate",
		Logger:      logging.Component(logger, "certificates"),
		Metrics:     metrics,
	}
	if s.certFile != "" {
		o.Pair, o.PairRemedy = certs.PairFiles(s.certFile, s.keyFile), "see --tls-client-cert and --tls-client-key"
	}
	if s.caFile != "" {
		o.Roots, o.RootsRemedy = certs.RootsFile(s.caFile), "see --root-ca-path"
	}
	return o
}
