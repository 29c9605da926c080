package dialer_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/dialer"
	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// principal hands each call to a test, which ends it.
type principal struct {
	syncv1.UnimplementedSyncServer
	tunnelv1.UnimplementedTunnelServer

	calls   chan *call
	listens chan *listen
	accepts chan context.Context // of tunnel connections, which the agent ends
}

// listen is an agent's call of Listen, under way.
type listen struct {
	tunnelv1.Tunnel_ListenServer
	ended chan error
}

// call is a call of an agent, under way.
type call struct {
	syncv1.Sync_ConnectServer
	at    time.Time
	ended chan error
}

func newPrincipal() *principal {
	return &principal{calls: make(chan *call), listens: make(chan *listen), accepts: make(chan context.Context)}
}

// Listen waits for the test to say how the call ends, or for the agent to end it.
func (p *principal) Listen(_ *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	l := &listen{stream, make(chan error, 1)}
	select {
	case p.listens <- l:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	select {
	case err := <-l.ended:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// Accept waits for the agent to end the connection.
func (p *principal) Accept(stream tunnelv1.Tunnel_AcceptServer) error {
	p.accepts <- stream.Context()
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// Connect waits for the test to say how the call ends, or for the agent to end it.
func (p *principal) Connect(stream syncv1.Sync_ConnectServer) error {
	c := &call{Sync_ConnectServer: stream, at: time.Now(), ended: make(chan error, 1)}
	select {
	case p.calls <- c:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	select {
	case err := <-c.ended:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// end ends the call.
func (c *call) end(err error) { c.ended <- err }

// greet reads the agent's hello and answers it, and returns what it was. The call is then only to be ended.
func (c *call) greet(t *testing.T) wire.Hello {
	t.Helper()
	s := wire.NewStream(c, func() {}, "/principal", slog.New(slog.DiscardHandler))
	defer s.Close(io.EOF)
	go s.Run()
	h, err := s.RecvHello(c.Context())
	require.NoError(t, err)
	answer := hello(t.Context())
	answer.Agent = "a"
	require.NoError(t, s.SendHello(answer))
	return h
}

// fixture is a dialer and what it needs.
type fixture struct {
	*dialer.Dialer
	principal *principal
	registry  *prometheus.Registry
	log       *logtest.Log
	stop      func() // ends the dialer, and waits for that

	renew func() // gives the agent another certificate
	cut   func() // cuts the connection that was made last. The principal learns nothing of it

	network atomic.Bool // whether the principal can be reached
	swallow atomic.Bool // whether a network that cannot reach it says nothing
	mu      sync.Mutex
	dials   []time.Time // when the network was used. Guarded by mu
}

// dialled returns when the network was used.
func (o *fixture) dialled() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.dials)
}

// dialContext opens a connection of the fixture's network.
type dialContext = func(ctx context.Context, address string) (net.Conn, error)

// over makes a network of a way to get to the principal.
func (o *fixture) over(dial dialContext) dialContext {
	return func(ctx context.Context, address string) (net.Conn, error) {
		o.mu.Lock()
		o.dials = append(o.dials, time.Now())
		o.mu.Unlock()
		switch {
		case o.network.Load():
			return dial(ctx, address)
		case o.swallow.Load():
			<-ctx.Done()
			return nil, ctx.Err()
		default:
			return nil, syscall.ECONNREFUSED
		}
	}
}

func hello(context.Context) wire.Hello {
	h := wire.NewHello()
	h.Build, h.Mode, h.Mapping = "v1.2.3", "managed", "namespace"
	return h
}

// newFixture makes a dialer that does not run. It gets to the principal by dial, or by TCP if that is nil. What the hub dials gets to the
// listeners, if there are any.
func newFixture(address string, renewed func() <-chan struct{}, c credentials.TransportCredentials, dial dialContext, listeners ...*tunnel.Listener) *fixture {
	o := &fixture{principal: newPrincipal(), registry: prometheus.NewRegistry(), log: &logtest.Log{}, stop: func() {}}
	o.network.Store(true)
	if dial != nil {
		dial = o.over(dial)
	}
	var tunnels *tunnel.Server
	if len(listeners) > 0 {
		tunnels = tunnel.NewServer(slog.New(slog.NewTextHandler(o.log, nil)), listeners...)
	}
	o.Dialer = dialer.New(dialer.Options{
		Address: address, Credentials: c, DialContext: dial, Tunnel: tunnels,
		Peer: converge.NewPeer(converge.Options{}), Hello: hello, Renewed: renewed,
		Registerer: o.registry, Logger: slog.New(slog.NewTextHandler(o.log, nil)),
	})
	return o
}

// run has the dialer run until the test is over.
func (o *fixture) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Run(ctx)
	}()
	o.stop = func() { cancel(); <-ended }
	t.Cleanup(o.stop)
}

// renewal returns a function whose channel says that the certificate was renewed, and one that renews it.
func renewal() (renewed func() <-chan struct{}, renew func()) {
	var mu sync.Mutex
	next := make(chan struct{})
	renewed = func() <-chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		return next
	}
	return renewed, func() {
		mu.Lock()
		defer mu.Unlock()
		close(next)
		next = make(chan struct{})
	}
}

// distance is how long it takes to connect, where the clock is a fake one.
const distance = time.Millisecond

// after lets time pass, for as long as the timer of a fake clock takes.
func after(d time.Duration) { <-time.After(d) }

// breakableConn is a connection that can be cut.
type breakableConn struct {
	net.Conn
	cut chan struct{} // closed when it is
}

var errCut = errors.New("the network is cut")

func (c *breakableConn) Read(buffer []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := c.Conn.Read(buffer)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-c.cut:
		return 0, errCut
	}
}

// Close closes this end. The other one does not learn of it when the cable is cut.
func (c *breakableConn) Close() error {
	select {
	case <-c.cut:
		return nil
	default:
		return c.Conn.Close()
	}
}

// withFakeClock runs a test with a fake clock, of a dialer that runs and a principal that is reached without a network.
func withFakeClock(t *testing.T, test func(t *testing.T, o *fixture)) {
	t.Helper()
	withTunnel(t, func(t *testing.T, o *fixture, _ *tunnel.Listener) { test(t, o) }, false)
}

// withTunnel does so of a dialer that has the hub reach a listener, if it is to listen.
func withTunnel(t *testing.T, test func(t *testing.T, o *fixture, kube *tunnel.Listener), listens bool) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		var listeners []*tunnel.Listener
		kube := tunnel.NewListener(tunnel.Kube)
		if listens {
			listeners = append(listeners, kube)
		}
		listener := bufconn.Listen(1 << 20)
		var last *breakableConn // that was laid
		renewed, renew := renewal()
		o := newFixture("passthrough:principal", renewed, insecure.NewCredentials(), func(ctx context.Context, _ string) (net.Conn, error) {
			after(distance)
			conn, err := listener.DialContext(ctx)
			last = &breakableConn{Conn: conn, cut: make(chan struct{})}
			return last, err
		}, listeners...)
		o.renew, o.cut = renew, func() { close(last.cut) }
		server := grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()))
		syncv1.RegisterSyncServer(server, o.principal)
		tunnelv1.RegisterTunnelServer(server, o.principal)
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		o.run(t)
		test(t, o, kube)
		o.stop()
		server.Stop()
		require.NoError(t, <-served)
	})
}

// metric reads a metric that has no labels.
func (o *fixture) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := o.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	require.Fail(t, "there is no metric "+name)
	return 0
}
