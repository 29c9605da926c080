package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/bounds"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/front"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

// name is the program's in logs and for the principal.
const name = "argocd-agent-redisproxy"

// redisTimeout is how long the hub's Redis may take to accept a connection.
const redisTimeout = 5 * time.Second

// certSources are where redisproxy's certificates and CAs come from.
type certSources struct {
	client *certs.Source // for the principal
	server *certs.Source // for clients; nil without TLS
	redis  *certs.Source // the CA of the hub's Redis; nil when it is the operating system's
}

// run runs a redisproxy until the context ends. It is the one place where its parts are put together.
func run(ctx context.Context, s *proxySettings, out io.Writer) error {
	base, err := program.Begin(program.Options{Name: name, Log: s.operations.Log, Output: out})
	if err != nil {
		return err
	}
	logger, registry := base.Logger, base.Registry
	m, err := s.certificates(logger, certs.NewMetrics(registry))
	if err != nil {
		return err
	}
	principal, err := s.principal.Connect(m.client, telemetry.DialOptions(registry)...)
	if err != nil {
		return err
	}
	agents := directory.New(principal, m.client.Changed, logging.Component(logger, "directory"))
	dialer := tunnel.NewDialer(principal, name, s.principal.AgentDomain())
	space := keys.Space{Prefix: s.redis.keyPrefix}
	agentsRedis := spokes.New(spokes.Options{
		Dial: func(ctx context.Context, agent string) (net.Conn, error) {
			return dialer.Dial(ctx, agent, tunnel.Redis)
		},
		Directory: agents, Space: space, CacheSize: int64(s.cacheSize) << 20, Timeout: s.agentTimeout,
		ValueLimits: bounds.Limits{Size: int64(s.valueSize) << 20, Memory: int64(s.valueMemory) << 20},
		Registerer:  registry, Logger: logging.Component(logger, "agents"),
	})
	clients := front.New(front.Options{
		Upstream: upstream.Options{Address: s.redis.address, TLS: s.redis.config(m.redis), Timeout: redisTimeout},
		Space:    space, Spokes: agentsRedis, Registerer: registry, Logger: logging.Component(logger, "clients"),
	})
	operations, err := s.operations.Serve(ctx, base, m.checks(agents)...)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operations.Run(ctx) })
	for _, source := range m.all() {
		group.Go(func() error { return source.Run(ctx) })
	}
	group.Go(func() error {
		defer dialer.Wait()
		defer func() { _ = principal.Close() }() // its only error is that it was closed before
		work, ctx := errgroup.WithContext(ctx)
		work.Go(func() error { agents.Run(ctx); return nil })
		work.Go(func() error { agentsRedis.Run(ctx); return nil })
		work.Go(func() error { agents.OnLeft(ctx, agentsRedis.Leave); return nil })
		work.Go(func() error { return s.serve(ctx, clients, m.server, logger) })
		return work.Wait()
	})
	return group.Wait()
}

// checks are those of readiness. Until the principal has sent its directory of agents, agents' keys look like the hub's own. When
// it disconnects later, the last directory still holds, and Argo CD is not to lose its Redis for that.
func (m *certSources) checks(agents *directory.Directory) []ops.Check {
	checks := []ops.Check{ops.When("principal certificate", m.client.Ready), ops.Once("principal", agents.Ready)}
	if m.server != nil {
		checks = append(checks, ops.When("certificate", m.server.Ready))
	}
	return checks
}

// serve serves clients until the context ends.
func (s *proxySettings) serve(ctx context.Context, clients *front.Server, own *certs.Source, logger *slog.Logger) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(s.listenHost, strconv.Itoa(s.listenPort)))
	if err != nil {
		return fmt.Errorf("--listen-host and --listen-port: %w", err)
	}
	logger.Info("Listening for Redis clients", "address", listener.Addr().String(), "tls", own != nil)
	if own != nil {
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				current, err := own.Current()
				if err == nil && current.Certificate == nil {
					err = errors.New("there is no certificate: see --tls-cert")
				}
				return current.Certificate, err
			},
		})
	}
	return clients.Serve(ctx, listener)
}

// certificates returns all certificates.
func (s *proxySettings) certificates(logger *slog.Logger, metrics *certs.Metrics) (m *certSources, err error) {
	logger = logging.Component(logger, "certificates")
	m = &certSources{}
	if m.client, err = s.principal.Certificates("redisproxy-principal", logger, metrics); err != nil {
		return nil, err
	}
	if m.server, err = s.tls.Source("redisproxy", nil, logger, metrics); err != nil {
		return nil, err
	}
	m.redis, err = s.redis.roots.Source("redisproxy-redis", nil, logger, metrics)
	return m, err
}

// all returns the sources that there are.
func (m *certSources) all() (sources []*certs.Source) {
	for _, source := range []*certs.Source{m.client, m.server, m.redis} {
		if source != nil {
			sources = append(sources, source)
		}
	}
	return sources
}

// config returns what the TLS of each connection to the hub's Redis is to be, or nil for none.
func (r *redisSettings) config(roots *certs.Source) func() (*tls.Config, error) {
	if !r.tls {
		return nil
	}
	return func() (*tls.Config, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		config.InsecureSkipVerify = r.insecure
		if roots != nil {
			current, err := roots.Current()
			if err != nil {
				return nil, err
			}
			config.RootCAs = current.Roots
		}
		return config, nil
	}
}
