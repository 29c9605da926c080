package dialer_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/dnstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// A DNS that does not answer for TXT records, and /etc/hosts that has the principal's name, must not hold up the agent.
func TestAgentLooksForAddressesOnly(t *testing.T) {
	dns := dnstest.Start(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	renewed, _ := renewal()
	o := newFixture("principal.test:"+port, renewed, insecure.NewCredentials(), nil)
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()))
	syncv1.RegisterSyncServer(server, o.principal)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	o.run(t)
	select {
	case <-o.principal.calls:
	case <-time.After(timeout):
		require.FailNow(t, "the agent did not connect", "%s", o.log)
	}
	o.stop()
	dns.AddressesOnly(t)
}
