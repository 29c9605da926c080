package telemetry_test

import (
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry"
)

func TestCallsAreCountedOnBothSides(t *testing.T) {
	servers, clients := prometheus.NewRegistry(), prometheus.NewRegistry()
	server := grpc.NewServer(telemetry.ServerOptions(servers)...)
	grpc_health_v1.RegisterHealthServer(server, grpc_health_v1.UnimplementedHealthServer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-served) })
	conn, err := grpc.NewClient(listener.Addr().String(), append(telemetry.DialOptions(clients),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	client := grpc_health_v1.NewHealthClient(conn)
	_, err = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.Error(t, err)
	stream, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Error(t, err)

	for name, registry := range map[string]*prometheus.Registry{"grpc_server_handled_total": servers, "grpc_client_handled_total": clients} {
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP `+name+` Total number of RPCs completed `+map[string]string{
			"grpc_server_handled_total": "on the server, regardless of success or failure.",
			"grpc_client_handled_total": "by the client, regardless of success or failure.",
		}[name]+`
# TYPE `+name+` counter
`+name+`{grpc_code="Unimplemented",grpc_method="Check",grpc_service="grpc.health.v1.Health",grpc_type="unary"} 1
`+name+`{grpc_code="Unimplemented",grpc_method="Watch",grpc_service="grpc.health.v1.Health",grpc_type="server_stream"} 1
`), name))
	}
}
