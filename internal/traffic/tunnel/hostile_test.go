package tunnel_test

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// floodingPrincipal dials without end.
type floodingPrincipal struct {
	tunnelv1.UnimplementedTunnelServer

	open, most atomic.Int64
}

const floodingDials = 5000

func (*floodingPrincipal) Listen(_ *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	for i := range floodingDials {
		if err := stream.Send(&tunnelv1.DialRequest{Id: strconv.Itoa(i), Target: string(tunnel.Kube)}); err != nil {
			return err
		}
	}
	return nil // which closes all
}

func (g *floodingPrincipal) Accept(stream tunnelv1.Tunnel_AcceptServer) error {
	g.most.Store(max(g.most.Load(), g.open.Add(1)))
	defer g.open.Add(-1)
	<-stream.Context().Done()
	return stream.Context().Err()
}

// However often a principal dials, an agent has no more than so many connections.
func TestConnectionsAreLimited(t *testing.T) {
	g := &floodingPrincipal{}
	server := grpc.NewServer()
	tunnelv1.RegisterTunnelServer(server, g)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { relaytest.Check(t, server.Serve(listener)) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()

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
	require.Error(t, tunnel.NewServer(slog.New(slog.DiscardHandler), kube).Serve(ctx, ctx, conn))
	require.NoError(t, ctx.Err())
	require.LessOrEqual(t, g.most.Load(), int64(1000))
	require.Positive(t, g.most.Load())
}
