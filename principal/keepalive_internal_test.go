package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

// An agent that sends keep-alive pings is dropped for it only when it does so more often than the operator allows.
func TestKeepAlivePingsMayComeAsOftenAsIsAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want connectivity.State
	}{
		"by default":      {nil, connectivity.Ready},
		"without a limit": {[]string{"--keepalive-min-interval=0"}, connectivity.Ready},
		"as often":        {[]string{"--keepalive-min-interval=10s"}, connectivity.Ready},
		"less often":      {[]string{"--keepalive-min-interval=1m"}, connectivity.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			s := &principalSettings{}
			require.NoError(t, settingstest.Parse(s.Declare, nil, c.args...))
			bubble.Test(t, func(t *testing.T) {
				listener := bufconn.Listen(1 << 20)
				server := grpc.NewServer(s.transport()...)
				served := make(chan error, 1)
				go func() { served <- server.Serve(listener) }()
				agent, err := grpc.NewClient("passthrough:principal",
					grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
					grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, PermitWithoutStream: true}))
				require.NoError(t, err)
				agent.Connect()
				<-time.After(time.Minute + time.Second)
				require.Equal(t, c.want, agent.GetState())
				require.NoError(t, agent.Close())
				server.Stop()
				require.NoError(t, <-served)
			})
		})
	}
}
