// Package relaytest runs a principal's relay, a component of the hub and agents over real TLS on loopback, for tests.
package relaytest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers that codec
	"google.golang.org/grpc/status"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay"
)

const (
	// Timeout is how long a test waits for what must happen.
	Timeout = 2 * time.Minute
	// Component is the name of the hub's component, which may dial all targets.
	Component = "argocd-agent-test"
	// RedisComponent is the name of one that may dial redis alone.
	RedisComponent = "argocd-agent-test-redis"
	// Principal is the name of the principals, which know each other by it.
	Principal = "argocd-agent-principal"
	// Echo is an agent whose API server sends back what it receives.
	Echo = "echo"
	// ByName is how the names of agents begin that have no namespaces of their own.
	ByName = "by-name"
)

// Check fails a test from any goroutine.
func Check(tb testing.TB, err error) {
	tb.Helper()
	assert.NoError(tb, err)
}

// World is a principal, a component of the hub that dials, and the agents "a" and Echo.
type World struct {
	Relay      *relay.Relay
	Directory  *relay.Directory
	Hub        *grpc.ClientConn // of the component
	Dialer     *tunnel.Dialer   // the same
	Disconnect func()           // ends agent a; returns when the principal knows
	Drain      func()           // has the principal close all connections; returns when they are closed
	Kill       func()           // stops the principal without draining
	Address    string           // of the principal
	CA         *pki.CA          // of all certificates

	Roster *peers.Roster
	Peers  *peers.Peers

	kube      *tunnel.Listener // of agent a
	draining  atomic.Bool
	addresses chan []string // of the principals
	others    []*World      // that Another returned
}

// Open runs a world with the agents a and Echo until the test is over.
func Open(tb testing.TB) *World {
	tb.Helper()
	w := newWorld(tb)
	w.Directory.SetComplete()
	w.Disconnect = w.Agent(tb, "a", w.kube)

	echo := tunnel.NewListener(tunnel.Kube)
	var echoes sync.WaitGroup
	echoes.Go(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			echoes.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	tb.Cleanup(func() { Check(tb, echo.Close()); echoes.Wait() })
	w.Agent(tb, Echo, echo)
	w.connect(tb)
	return w
}

// OpenIncomplete runs a world without agents whose directory is not complete.
func OpenIncomplete(tb testing.TB) *World {
	tb.Helper()
	w := newWorld(tb)
	w.connect(tb)
	return w
}

// newWorld runs a principal.
func newWorld(tb testing.TB) *World {
	tb.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(tb, err)
	return newPrincipal(tb, ca, "one")
}

// newPrincipal runs a principal by certificates of a CA.
func newPrincipal(tb testing.TB, ca *pki.CA, name string) *World {
	tb.Helper()
	roster := peers.NewRoster(peers.Self{ID: name, Name: name}, authn.ErrSuperseded)
	w := &World{
		CA: ca, kube: tunnel.NewListener(tunnel.Kube), Roster: roster, Directory: relay.NewDirectory(namespaceOf, roster),
		addresses: make(chan []string),
	}
	w.serve(tb)
	return w
}

// Another runs another principal of the same hub, without agents, and a component that dials at it, which knows of this one when it returns. All
// that it is called for know of each other.
func (w *World) Another(tb testing.TB, name string) *World {
	tb.Helper()
	other := newPrincipal(tb, w.CA, name)
	other.Directory.SetComplete()
	other.connect(tb)
	w.others = append(w.others, other)
	var addresses []string
	for _, p := range append([]*World{w}, w.others...) {
		addresses = append(addresses, p.Address)
	}
	w.addresses <- addresses
	for _, p := range w.others {
		p.addresses <- addresses
	}
	other.AwaitConnected(tb, Echo, true)
	return other
}

// namespaceOf gives all agents the namespaces of their names but those whose names begin with ByName.
func namespaceOf(agent string) string {
	if strings.HasPrefix(agent, ByName) {
		return ""
	}
	return agent
}

// connect connects the hub's component.
func (w *World) connect(tb testing.TB) {
	tb.Helper()
	w.Hub = w.ClientConn(tb, Component)
	w.Dialer = tunnel.NewDialer(w.Hub, "the test", "")
	tb.Cleanup(func() { Check(tb, w.Hub.Close()); w.Dialer.Wait() })
}

// source returns certificates that do not change.
func (w *World) source(tb testing.TB, pair pki.Pair) *certs.Source {
	tb.Helper()
	source, err := certs.New(certs.Options{
		Name: "test", Logger: slog.New(slog.DiscardHandler), Metrics: certs.NewMetrics(prometheus.NewRegistry()),
		Pair: certs.Fixed("pair", certs.Blocks{Certificate: pair.Certificate, Key: pair.Key}), PairHint: "none",
		Roots: certs.Fixed("roots", certs.Blocks{CAs: w.CA.PEM().Certificate}), RootsHint: "none",
	})
	require.NoError(tb, err)
	run(tb, func(ctx context.Context) { Check(tb, source.Run(ctx)) })
	require.NoError(tb, source.Wait(tb.Context()))
	return source
}

// run runs something until the test is over, or stop is called. stop waits for its end.
func run(tb testing.TB, something func(context.Context)) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		something(ctx)
	}()
	stop = func() { cancel(); <-done }
	tb.Cleanup(stop)
	return stop
}

// serve serves a principal.
func (w *World) serve(tb testing.TB) {
	tb.Helper()
	pair, err := w.CA.IssueServer(pki.ServerOptions{CommonName: "principal", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(tb, err)
	material := w.source(tb, pair)
	identify, err := identity.New(identity.Options{Auth: identity.DefaultAuth, Components: identity.Components{
		Component: {string(tunnel.Kube), string(tunnel.Redis)}, RedisComponent: {string(tunnel.Redis)}, Principal: {peers.Target},
	}})
	require.NoError(tb, err)
	authenticator := authn.New(authn.Options{Identify: identify, Trust: identity.Verified(material, nil), Logger: slog.New(slog.DiscardHandler)})
	w.Peers = peers.New(peers.Options{
		Roster: w.Roster, Prefix: "test", Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Addresses: func(ctx context.Context, report func([]string)) {
			for {
				select {
				case addresses := <-w.addresses:
					report(addresses)
				case <-ctx.Done():
					return
				}
			}
		},
		Dial: func(address string) (*grpc.ClientConn, error) { return w.dial(tb, Principal, address) },
	})
	w.Relay = relay.New(relay.Options{
		Authn: authenticator, Directory: w.Directory, Roster: w.Roster, Peer: w.Peers.Conn, Registerer: prometheus.NewRegistry(),
	})
	run(tb, authenticator.Run)
	server := grpc.NewServer(append(tunnel.ServerOptions(),
		grpc.Creds(certs.ServerCredentials(certs.ServerOptions{Source: material})),
		grpc.ForceServerCodecV2(relay.NewCodec(encoding.GetCodecV2("proto"))))...)
	tunnelv1.RegisterTunnelServer(server, w.Relay)
	tunnelv1.RegisterRelayServer(server, w.Relay)
	peerv1.RegisterPeerServer(server, peers.NewService(w.Roster, authenticator.Admit, w.Relay.AcceptFor))
	peers.NewLookup(w.Roster, authenticator.Admit, string(tunnel.Kube), string(tunnel.Redis)).Register(server)
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	w.Address = listener.Addr().String()
	kill := run(tb, func(ctx context.Context) {
		context.AfterFunc(ctx, server.Stop)
		Check(tb, server.Serve(listener))
	})
	w.Kill = func() { w.draining.Store(true); kill() }
	run(tb, w.Peers.Run)
	drain := run(tb, w.Relay.Run)
	w.Drain = func() { w.draining.Store(true); drain() }
}

// ClientConn connects to the principal with a certificate of that name.
func (w *World) ClientConn(tb testing.TB, name string) *grpc.ClientConn {
	tb.Helper()
	conn, err := w.dial(tb, name, w.Address)
	require.NoError(tb, err)
	return conn
}

func (w *World) dial(tb testing.TB, name, address string) (*grpc.ClientConn, error) {
	tb.Helper()
	pair, err := w.CA.IssueClient(pki.ClientOptions{CommonName: name})
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(address, append(tunnel.DialOptions(), grpc.WithTransportCredentials(
		certs.ClientCredentials(certs.ClientOptions{Source: w.source(tb, pair)})))...)
}

// Agent runs an agent, and returns when it is connected. disconnect stops it. If the principal says that it listens elsewhere, that is what
// the test wants.
func (w *World) Agent(tb testing.TB, name string, listeners ...*tunnel.Listener) (disconnect func()) {
	tb.Helper()
	conn := w.ClientConn(tb, name)
	tb.Cleanup(func() { Check(tb, conn.Close()) })
	server := tunnel.NewServer(slog.New(slog.DiscardHandler), listeners...)
	stop := run(tb, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var conns sync.WaitGroup
		defer conns.Wait()
		err := server.Serve(ctx, ctx, conn, &conns)
		if status.Code(err) == codes.Aborted { // it listens elsewhere, and what is open stays open
			return
		}
		if ctx.Err() == nil && !w.draining.Load() {
			Check(tb, err)
		}
		cancel()
	})
	w.AwaitConnected(tb, name, true)
	return func() { stop(); w.AwaitConnected(tb, name, false) }
}

// Listen runs an agent that accepts nothing.
func (w *World) Listen(tb testing.TB, name string) (stop func()) {
	tb.Helper()
	conn := w.ClientConn(tb, name)
	_, err := tunnelv1.NewTunnelClient(conn).Listen(tb.Context(), &tunnelv1.ListenRequest{})
	require.NoError(tb, err)
	w.AwaitConnected(tb, name, true)
	return func() { Check(tb, conn.Close()) }
}

// AwaitConnected waits until the directory says that an agent is connected, or is not.
func (w *World) AwaitConnected(tb testing.TB, name string, connected bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Timeout)
	defer cancel()
	conn := w.ClientConn(tb, Component)
	defer func() { Check(tb, conn.Close()) }()
	updates, err := tunnelv1.NewRelayClient(conn).Watch(ctx, &tunnelv1.WatchRequest{})
	require.NoError(tb, err)
	is := false // one without a cluster Secret is in no update when it is not connected
	for complete := false; !complete || is != connected; {
		update, err := updates.Recv()
		require.NoError(tb, err)
		complete = complete || !update.GetMore()
		for _, a := range update.GetAgents() {
			if a.GetName() == name {
				is = a.GetConnected()
			}
		}
		is = is && !slices.Contains(update.GetRemoved(), name)
	}
}

// Connect opens a tunnel connection from the hub to agent a, and returns both ends.
func (w *World) Connect(tb testing.TB) (hub, spoke net.Conn) {
	tb.Helper()
	accepted := make(chan net.Conn, 1)
	go func() { accepted <- w.Accept(tb) }()
	hub, err := w.Dialer.Dial(tb.Context(), "a", tunnel.Kube)
	require.NoError(tb, err)
	spoke = <-accepted
	tb.Cleanup(func() { hub.Close(); spoke.Close() })
	return hub, spoke
}

// Accept returns agent a's end of the next connection to it.
func (w *World) Accept(tb testing.TB) net.Conn {
	tb.Helper()
	c, err := w.kube.Accept()
	if !errors.Is(err, net.ErrClosed) {
		Check(tb, err)
	}
	return c
}

// WaitClosed returns when all connections that were dialled are closed.
func (w *World) WaitClosed(tb testing.TB) {
	tb.Helper()
	done := make(chan struct{})
	go func() { w.Dialer.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(Timeout):
		require.FailNow(tb, "connections are left open")
	}
}
