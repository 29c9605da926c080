package main

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
)

// idle serves streams on which nothing is said.
type idle struct {
	syncv1.UnimplementedSyncServer
	begun chan struct{}
}

func (i idle) Connect(stream syncv1.Sync_ConnectServer) error {
	i.begun <- struct{}{}
	<-stream.Context().Done()
	return nil
}

// An agent has as many streams as it needs, and no more than the principal has memory for.
func TestAConnectionHasSoManyStreamsAndNoMore(t *testing.T) {
	s, err := readSettings(nil, nothing)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		listener := bufconn.Listen(1 << 20)
		server := grpc.NewServer(s.transport()...)
		service := idle{begun: make(chan struct{}, 1000)}
		syncv1.RegisterSyncServer(server, service)
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		connection, err := grpc.NewClient("passthrough:principal",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		require.NoError(t, err)
		ctx, end := context.WithCancel(t.Context())
		results := make(chan error, 1000)
		for range 300 {
			go func() {
				_, err := syncv1.NewSyncClient(connection).Connect(ctx)
				results <- err
			}()
		}
		synctest.Wait()
		require.Len(t, service.begun, 256)
		require.Len(t, results, 256, "the others wait")
		end()
		require.NoError(t, connection.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
}
