package tunnel_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/exchange"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience  = 20 * time.Second
	component = "argocd-agent-test"
	echoing   = "echo" // an agent whose API server says what it is told
)

// check fails a test from any goroutine.
func check(t *testing.T, err error) {
	t.Helper()
	assert.NoError(t, err)
}

// works are a principal, a component of the hub that dials, and agents.
type works struct {
	authority  *pki.Authority
	exchange   *exchange.Exchange
	address    string
	dialer     *tunnel.Dialer
	kube       *tunnel.Listener // of agent a
	disconnect func()           // of agent a; returns when the principal knows
}

// open opens the works, with the agents a and echo, until the test is over.
func open(t *testing.T) *works {
	t.Helper()
	w := &works{kube: tunnel.NewListener(tunnel.Kube)}
	var err error
	w.authority, err = pki.NewAuthority(pki.AuthorityOptions{CommonName: "test"})
	require.NoError(t, err)
	w.serve(t)
	w.disconnect = w.agent(t, "a", w.kube)

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
	t.Cleanup(func() { echo.Close(); echoes.Wait() })
	w.agent(t, echoing, echo)

	conn := w.dial(t, component)
	w.dialer = tunnel.NewDialer(conn, "the test")
	t.Cleanup(func() { check(t, conn.Close()); w.dialer.Wait() })
	return w
}

// source follows material that does not change, until the test is over.
func (w *works) source(t *testing.T, pair pki.Pair) *certs.Source {
	t.Helper()
	source, err := certs.New(certs.Options{
		Name: "test", Logger: slog.New(slog.DiscardHandler), Metrics: certs.NewMetrics(prometheus.NewRegistry()),
		Pair: certs.Fixed("pair", certs.Blocks{Certificate: pair.Certificate, Key: pair.Key}), PairRemedy: "none",
		Roots: certs.Fixed("roots", certs.Blocks{Authorities: w.authority.PEM().Certificate}), RootsRemedy: "none",
	})
	require.NoError(t, err)
	run(t, func(ctx context.Context) { check(t, source.Run(ctx)) })
	require.NoError(t, source.Wait(t.Context()))
	return source
}

// run runs something until the test is over, or the function that it returns is called, which waits for its end.
func run(t *testing.T, something func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		something(ctx)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// serve serves a principal.
func (w *works) serve(t *testing.T) {
	t.Helper()
	pair, err := w.authority.IssueServer(pki.ServerOptions{CommonName: "principal", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	material := w.source(t, pair)
	identify, err := identity.New(identity.Options{Auth: identity.DefaultAuth, Components: []string{component}})
	require.NoError(t, err)
	g := gate.New(gate.Options{Identify: identify, Trust: material, Logger: slog.New(slog.DiscardHandler)})
	w.exchange = exchange.New(exchange.Options{
		Gate: g, Namespace: func(agent string) string { return agent }, Registerer: prometheus.NewRegistry(),
	})
	run(t, g.Run)
	server := grpc.NewServer(grpc.Creds(certs.ServerCredentials(certs.ServerOptions{Source: material})))
	tunnelv1.RegisterTunnelServer(server, w.exchange)
	tunnelv1.RegisterRelayServer(server, w.exchange)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.address = listener.Addr().String()
	run(t, func(ctx context.Context) {
		context.AfterFunc(ctx, server.Stop)
		check(t, server.Serve(listener))
	})
	run(t, w.exchange.Run)
}

// dial connects to the principal with a certificate of that name.
func (w *works) dial(t *testing.T, name string) *grpc.ClientConn {
	t.Helper()
	pair, err := w.authority.IssueClient(pki.ClientOptions{CommonName: name})
	require.NoError(t, err)
	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(
		certs.ClientCredentials(certs.ClientOptions{Source: w.source(t, pair)})))
	require.NoError(t, err)
	return conn
}

// agent has an agent listen, and returns when the principal knows. The function that it returns has it go.
func (w *works) agent(t *testing.T, name string, listeners ...*tunnel.Listener) (disconnect func()) {
	t.Helper()
	conn := w.dial(t, name)
	t.Cleanup(func() { check(t, conn.Close()) })
	server := tunnel.NewServer(slog.New(slog.DiscardHandler), listeners...)
	stop := run(t, func(ctx context.Context) {
		if err := server.Serve(ctx, conn); ctx.Err() == nil {
			check(t, err)
		}
	})
	w.await(t, name, true)
	return func() { stop(); w.await(t, name, false) }
}

// listen has an agent listen that takes nothing up.
func (w *works) listen(t *testing.T, name string) (stop func()) {
	t.Helper()
	conn := w.dial(t, name)
	_, err := tunnelv1.NewTunnelClient(conn).Listen(t.Context(), &tunnelv1.ListenRequest{})
	require.NoError(t, err)
	w.await(t, name, true)
	return func() { check(t, conn.Close()) }
}

// await waits until the principal tells its components that an agent is connected, or is not.
func (w *works) await(t *testing.T, name string, connected bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := w.dial(t, component)
	defer conn.Close()
	told, err := tunnelv1.NewRelayClient(conn).Watch(ctx, &tunnelv1.WatchRequest{})
	require.NoError(t, err)
	for {
		news, err := told.Recv()
		require.NoError(t, err)
		for _, a := range news.GetAgents() {
			if a.GetName() == name && a.GetConnected() == connected {
				return
			}
		}
	}
}

// converse has a conversation begin between the hub and agent a, and returns both ends.
func (w *works) converse(t *testing.T) (hub, spoke net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := w.kube.Accept()
		if !errors.Is(err, net.ErrClosed) {
			check(t, err)
		}
		accepted <- c
	}()
	hub, err := w.dialer.Dial(t.Context(), "a", tunnel.Kube)
	require.NoError(t, err)
	spoke = <-accepted
	t.Cleanup(func() { hub.Close(); spoke.Close() })
	return hub, spoke
}

// settled returns when all conversations that were dialled are over.
func (w *works) settled(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() { w.dialer.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(t, "conversations are left")
	}
}
