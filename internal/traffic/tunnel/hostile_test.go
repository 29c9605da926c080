package tunnel_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// floodingPrincipal dials without end.
type floodingPrincipal struct {
	tunnelv1.UnimplementedTunnelServer

	open, most atomic.Int64

	first  sync.Once
	opened chan struct{} // closed when the first connection has come
}

const floodingDials = 5000

func (g *floodingPrincipal) Listen(_ *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	for i := range floodingDials {
		if err := stream.Send(&tunnelv1.DialRequest{Id: strconv.Itoa(i), Target: string(tunnel.Kube)}); err != nil {
			return err
		}
	}
	select { // the first connection has come; which closes all
	case <-g.opened:
		return nil
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (g *floodingPrincipal) Accept(stream tunnelv1.Tunnel_AcceptServer) error {
	now := g.open.Add(1)
	defer g.open.Add(-1)
	for most := g.most.Load(); now > most && !g.most.CompareAndSwap(most, now); most = g.most.Load() {
	}
	g.first.Do(func() { close(g.opened) })
	<-stream.Context().Done()
	return stream.Context().Err()
}

// However often a principal dials, an agent has no more than so many connections.
func TestConnectionsAreLimited(t *testing.T) {
	g := &floodingPrincipal{opened: make(chan struct{})}
	conn := serve(t, g)
	var serving sync.WaitGroup
	defer serving.Wait()
	kube := tunnel.NewListener(tunnel.Kube)
	serving.Go(func() {
		for {
			c, err := kube.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	})
	defer kube.Close()
	ctx, cancel := context.WithTimeout(t.Context(), relaytest.Timeout)
	defer cancel()
	var conns sync.WaitGroup
	require.Error(t, tunnel.NewServer(slog.New(slog.DiscardHandler), kube).Serve(ctx, ctx, conn, &conns))
	require.NoError(t, ctx.Err())
	cancel()
	conns.Wait()
	require.LessOrEqual(t, g.most.Load(), int64(1000))
	require.Positive(t, g.most.Load())
}

// stayingPrincipal dials as often as it is told to, stops listening when that many connections have come, and keeps them open.
type stayingPrincipal struct {
	tunnelv1.UnimplementedTunnelServer

	dials, expects int
	came           chan struct{}
}

func (p *stayingPrincipal) Listen(_ *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	for i := range p.dials {
		if err := stream.Send(&tunnelv1.DialRequest{Id: strconv.Itoa(i), Target: string(tunnel.Kube)}); err != nil {
			return err
		}
	}
	for range p.expects {
		<-p.came
	}
	return nil
}

func (p *stayingPrincipal) Accept(stream tunnelv1.Tunnel_AcceptServer) error {
	p.came <- struct{}{}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// A hub that has an agent go from principal to principal, and keeps what it has open through each, gets no more connections by that.
func TestConnectionsOverOlderWaysAreCounted(t *testing.T) {
	const most = 1000
	first := &stayingPrincipal{dials: most, expects: most, came: make(chan struct{}, most)}
	others := &stayingPrincipal{dials: 50, came: make(chan struct{}, most)}
	kube := tunnel.NewListener(tunnel.Kube)
	var serving, conns sync.WaitGroup
	defer serving.Wait()
	defer kube.Close()
	serving.Go(func() {
		for {
			c, err := kube.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), relaytest.Timeout)
	defer cancel()
	server := tunnel.NewServer(slog.New(slog.DiscardHandler), kube)
	for _, principal := range []*stayingPrincipal{first, others, others} {
		require.ErrorIs(t, server.Serve(ctx, ctx, serve(t, principal), &conns), io.EOF)
	}
	require.NoError(t, ctx.Err())
	cancel()
	conns.Wait()
	require.Empty(t, others.came)
}

// serve has a principal of the test's own serve an agent, and returns the agent's connection to it.
func serve(t *testing.T, principal tunnelv1.TunnelServer) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer()
	tunnelv1.RegisterTunnelServer(server, principal)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { relaytest.Check(t, server.Serve(listener)) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	conn, err := grpc.NewClient(listener.Addr().String(),
		append(tunnel.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { relaytest.Check(t, conn.Close()) })
	return conn
}

// longPrincipal dials with texts that are as long as allowed and longer.
type longPrincipal struct {
	tunnelv1.UnimplementedTunnelServer

	accepted chan string // ids
}

func (*longPrincipal) Listen(_ *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	for _, length := range []int{129, 1 << 10, 60 << 10, 128} {
		for _, dial := range []*tunnelv1.DialRequest{
			{Id: strings.Repeat("i", length), Target: string(tunnel.Kube)}, {Id: "target", Target: strings.Repeat("t", length)},
		} {
			if err := stream.Send(dial); err != nil {
				return err
			}
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (p *longPrincipal) Accept(stream tunnelv1.Tunnel_AcceptServer) error {
	ids := metadata.ValueFromIncomingContext(stream.Context(), tunnel.MetadataDial)
	p.accepted <- strings.Join(ids, ",")
	return nil
}

// What a principal sends to have sent back or logged is bounded, said once, and stops nothing else.
func TestDialWithLongTextsIsNotAccepted(t *testing.T) {
	p := &longPrincipal{accepted: make(chan string, 10)}
	conn := serve(t, p)
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), relaytest.Timeout)
	defer cancel()
	kube := tunnel.NewListener(tunnel.Kube)
	defer kube.Close()
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = tunnel.NewServer(slog.New(slog.NewTextHandler(&log, nil)), kube).Serve(ctx, ctx, conn, &serving) // until the test cancels it
	})
	require.Equal(t, strings.Repeat("i", 128), <-p.accepted)
	cancel()
	serving.Wait()
	require.Empty(t, p.accepted)
	require.Equal(t, 1, strings.Count(log.String(), "too long"), log.String())
	require.Less(t, log.Len(), 1<<10)
}

// Headers that are larger than any of ours are refused by both sides, since each keeps them as long as a call lasts.
func TestHeadersOfCallsAreBounded(t *testing.T) {
	w := relaytest.Open(t)
	dial := func(length int) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), tunnel.MetadataAgent, "nobody", tunnel.MetadataTarget, string(tunnel.Kube),
			"x", strings.Repeat("x", length))
		hub, err := tunnelv1.NewRelayClient(w.Hub).Dial(ctx)
		if err == nil {
			_, err = hub.Recv()
		}
		return err
	}
	require.ErrorContains(t, dial(60<<10), "there is no such agent")
	err := dial(64 << 10)
	require.ErrorContains(t, err, "maximum size (65536 bytes)")
	require.ErrorContains(t, dial(0), "there is no such agent", "the connection is as it was")

	p := &headerPrincipal{sent: make(chan error, 1)}
	_, err = tunnelv1.NewTunnelClient(serve(t, p)).Listen(t.Context(), &tunnelv1.ListenRequest{})
	require.NoError(t, err)
	require.ErrorContains(t, <-p.sent, "header list size")
}

// headerPrincipal sends large headers.
type headerPrincipal struct {
	tunnelv1.UnimplementedTunnelServer

	sent chan error // why it could not
}

func (p *headerPrincipal) Listen(_ *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	p.sent <- stream.SendHeader(metadata.Pairs("x", strings.Repeat("x", 64<<10)))
	return nil
}
