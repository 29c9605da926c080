package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

const (
	// cutAfter is how long streams may take to end that are told to, and handshakes may take.
	cutAfter = 15 * time.Second
	// linger is how long connections may take to end once no stream is left. Agents have the reason by then; gRPC waits for each
	// to acknowledge a ping, which takes seconds when thousands of them connect elsewhere at the same time.
	linger = time.Second
)

// maxIdle is how long a connection without any stream is kept. An agent's has one for as long as it works, and so has a component's.
const maxIdle = 5 * time.Minute

// maxStreams is how many streams may be open over one connection. A component of the hub has one for each tunnel connection to
// any spoke. Agents are held to less, see authn.MaxStreams.
const maxStreams = 50_000

// server returns the gRPC server with all services.
func (p *principal) server(ctx context.Context) *grpc.Server {
	s := p.settings
	secure := certs.ServerCredentials(certs.ServerOptions{Source: p.entrance.certificates, Policy: s.policy, ClientCertOptional: s.jwtAudience != ""})
	server := grpc.NewServer(append(s.transport(), append(telemetry.ServerOptions(p.registry), sessions.ServerOptions(ctx, secure)...)...)...)
	syncv1.RegisterSyncServer(server, p.sessions)
	tunnelv1.RegisterTunnelServer(server, p.relay)
	tunnelv1.RegisterRelayServer(server, p.relay)
	peerv1.RegisterPeerServer(server, peers.NewService(p.roster, p.entrance.authn.Admit, p.relay.AcceptFor))
	peers.NewLookup(p.roster, p.entrance.authn.Admit, string(tunnel.Kube), string(tunnel.Redis)).Register(server)
	p.issuer.register(server)
	return server
}

// serve serves agents, and components of the hub, until the context ends and all have gone elsewhere, or had the time to. Then it stops the
// server. First agents are asked, in turns, and listen here until they do at another principal. Then all are that have connections, and no new
// ones are taken; what is carried goes on. At last the parts that serve end their streams.
func (p *principal) serve(ctx context.Context) error {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	accepting, leave := context.WithCancel(serving)
	defer end()
	defer leave()
	s, server, logger := p.settings, p.server(accepting), logging.Component(p.logger, "agents")
	listener, err := s.proxies.Listen(ctx, net.JoinHostPort(s.listenHost, strconv.Itoa(s.listenPort)), logger)
	if err != nil {
		return err
	}
	p.logger.Info("Listen for agents", "address", listener.Addr().String())
	listener = s.limits.listen(listener, logger)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve agents: %w", err)
		}
		return nil
	})
	asked, streams := make(chan struct{}), make(chan struct{}) // closed when agents have been asked, and when all streams are over
	group.Go(func() error {
		defer close(asked)
		p.sessions.Run(ctx)
		return nil
	})
	group.Go(func() error {
		defer close(streams)
		together(serving, p.relay.Run, p.others.Run)
		return nil
	})
	group.Go(func() error {
		defer end()
		defer leave()
		<-ctx.Done()
		p.drain(serving, asked, leave)
		return nil
	})
	group.Go(func() error {
		<-accepting.Done()
		stop(server, serving.Done(), streams)
		return nil
	})
	return group.Wait()
}

// drain waits until agents and components have gone elsewhere, or had the time to. It calls leave when they are to begin nothing more here.
func (p *principal) drain(ctx context.Context, asked <-chan struct{}, leave func()) {
	within, logger := p.drainTime(), logging.Component(p.logger, "agents")
	timed, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	patience, stop := context.WithTimeout(timed, within*3/4)
	defer stop()
	p.roster.Drain()
	<-asked
	p.relay.Drain(timed, patience, func() {
		p.directory.Left()
		leave()
		if agents, connections := p.relay.Left(); agents == 0 && connections > 0 && timed.Err() == nil {
			logger.Info("Agents are reached elsewhere; tunnel connections are waited for", "connections", connections, "within", within.String())
		}
	})
	if agents, connections := p.relay.Left(); within > 0 && agents+connections > 0 {
		logger.Warn("Drain timeout is over; agents and tunnel connections that are left are disconnected", "agents", agents, "connections", connections)
	}
}

// drainTime is how long agents and components may take to go to another principal: no time if there is none.
func (p *principal) drainTime() time.Duration {
	for _, other := range p.others.All() {
		if !other.Draining {
			return p.settings.drainTimeout
		}
	}
	return 0
}

// stop has no connection begin another stream, and stops the server when none is left. What does not end in time once all is ending, such as
// a port scanner's handshake, is cut.
func stop(server *grpc.Server, ending, streams <-chan struct{}) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	var cut <-chan time.Time
	for {
		select {
		case <-ending:
			cut, ending = time.After(cutAfter), nil
		case <-streams:
			cut, streams = time.After(linger), nil
		case <-cut:
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
		grpc.ConnectionTimeout(cutAfter),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: maxIdle}),
		grpc.KeepaliveEnforcementPolicy(s.enforcement()),
	)
}

// enforcement says how often an agent may ask whether its connection still works.
func (s *principalSettings) enforcement() keepalive.EnforcementPolicy {
	// gRPC takes 0 for its default, which is five minutes. Nobody can ask more often than this.
	return keepalive.EnforcementPolicy{MinTime: max(s.keepAliveMin, time.Nanosecond), PermitWithoutStream: true}
}
