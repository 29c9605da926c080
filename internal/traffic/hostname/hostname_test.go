package hostname_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/hostname"
)

func check(t *testing.T, address string) error {
	t.Helper()
	conn, err := grpc.NewClient(address, append(hostname.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	defer conn.Close()
	_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	return err
}

// A name with an empty label is none to any DNS, so none is asked.
func TestNameThatIsNotKnownIsNamed(t *testing.T) {
	t.Parallel()
	err := check(t, "hub..example:443")
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, `no such host: "hub..example": correct the address`)
}

func TestNameThatIsKnownIsDialled(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, check(t, net.JoinHostPort("localhost", port)))
	server.Stop()
	require.NoError(t, <-served)
}
