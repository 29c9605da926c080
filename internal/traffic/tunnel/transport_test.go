package tunnel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/dnstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// A DNS that does not answer, or not for TXT records, must not hold up a connection to a name that /etc/hosts has.
func TestNoServiceConfigIsLookedFor(t *testing.T) {
	dns := dnstest.Start(t)
	conn, err := grpc.NewClient("dns:///principal.test:1", append(tunnel.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	stream, err := tunnelv1.NewRelayClient(conn).Watch(t.Context(), &tunnelv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	require.Error(t, err, "nobody listens there")
	require.NoError(t, conn.Close())
	dns.AddressesOnly(t)
}
