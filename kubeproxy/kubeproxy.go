package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/gateway"
)

// name is what kubeproxy is called in logs and by the principal.
const name = "argocd-agent-kubeproxy"

// drainTimeout is how long open requests may take to end at shutdown.
const drainTimeout = 10 * time.Second

// run runs a kubeproxy until the context ends. It is the one place where its parts are put together.
func run(ctx context.Context, s *proxySettings, out io.Writer) error {
	base, err := program.Begin(program.Options{Name: name, Log: s.operations.Log, Output: out})
	if err != nil {
		return err
	}
	logger, registry := base.Logger, base.Registry
	metrics := certs.NewMetrics(registry)
	serverCerts, err := s.tls.Source("kubeproxy", nil, logging.Component(logger, "certificates"), metrics)
	if err != nil {
		return err
	}
	principalCerts, err := s.principal.Certificates("kubeproxy-principal", logging.Component(logger, "certificates"), metrics)
	if err != nil {
		return err
	}
	principal, err := s.principal.Connect(principalCerts, telemetry.DialOptions(registry)...)
	if err != nil {
		return err
	}
	dialer := tunnel.NewDialer(principal, name, s.principal.AgentDomain())
	dial := func(ctx context.Context, agent string) (net.Conn, error) { return dialer.Dial(ctx, agent, tunnel.Kube) }
	agents := directory.New(principal, principalCerts.Changed, logging.Component(logger, "directory"))
	unblocked := callers.Restrict(identity.Verified(serverCerts, nil), agents, s.callers)
	options := callers.Options{Trust: unblocked, Blocklist: agents, Proxies: s.proxies, Table: s.callers}
	keys := token.NewSource(s.jwtKey, logging.Component(logger, "tokens"))
	if s.jwtKey != "" {
		options.Tokens = keys
	}
	admission := callers.New(options)
	requests := gateway.New(gateway.Options{
		Callers: admission, Dial: dial, Timeout: s.timeout, MaxResponse: int64(s.maxResponse) << 20, MaxMemory: int64(s.maxMemory) << 20,
		DrainTimeout: drainTimeout, MetricsAgents: s.metricsAgents, Registerer: registry, Logger: logging.Component(logger, "requests"),
	})
	operations, err := s.operations.Serve(ctx, base,
		ops.When("certificate", serverCerts.Ready), ops.When("principal certificate", principalCerts.Ready),
		ops.Once("principal", agents.Ready))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operations.Run(ctx) })
	group.Go(func() error { return serverCerts.Run(ctx) })
	group.Go(func() error { return principalCerts.Run(ctx) })
	if s.jwtKey != "" {
		group.Go(func() error { return keys.Run(ctx) })
	}
	group.Go(func() error { unblocked.Run(ctx); return nil })
	group.Go(func() error { admission.Run(ctx); return nil })
	group.Go(func() error {
		defer dialer.Wait()
		defer func() { _ = principal.Close() }() // it only ever says that it was closed before
		work, ctx := errgroup.WithContext(ctx)
		work.Go(func() error { agents.Run(ctx); return nil })
		work.Go(func() error { agents.OnLeft(ctx, requests.Leave); return nil })
		work.Go(func() error { return s.serve(ctx, requests, serverCerts, logger) })
		return work.Wait()
	})
	return group.Wait()
}

// maxConnectionsOfOne is how many connections may come with one certificate: argocd-server has a few, and one for each terminal.
const maxConnectionsOfOne = 1000

// serve serves callers until the context ends.
func (s *proxySettings) serve(ctx context.Context, requests *gateway.Gateway, serverCerts *certs.Source, logger *slog.Logger) error {
	listener, err := s.proxies.Listen(ctx, net.JoinHostPort(s.listenHost, strconv.Itoa(s.listenPort)), logger)
	if err != nil {
		return err
	}
	logger.Info("Listening for API requests", "address", listener.Addr().String())
	limit := connlimit.New(connlimit.Options{
		Total: s.maxConnections, Setting: "--max-connections", PerCertificate: maxConnectionsOfOne, Logger: logger,
	})
	secure := certs.ServerTLS(certs.ServerOptions{Source: serverCerts, Policy: s.policy})
	return requests.Serve(ctx, limit.Listen(listener), secure)
}
