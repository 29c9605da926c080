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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
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

// A name that has the addresses of several principals goes on to have that of one which shuts down. The agent goes to another.
func TestAgentLeavesTheAddressOfADrainingPrincipal(t *testing.T) {
	dnstest.Start(t, [4]byte{127, 0, 0, 1}, [4]byte{127, 0, 0, 2})
	one, two := newPrincipal(), newPrincipal()
	port := serveAtOnePort(t, map[string]*principal{"127.0.0.1": one, "127.0.0.2": two})
	renewed, _ := renewal()
	o := newFixture("principal.test:"+port, renewed, insecure.NewCredentials(), nil)
	o.run(t)
	comes := func(to, not *principal) *call {
		t.Helper()
		select {
		case c := <-to.calls:
			return c
		case <-not.calls:
			require.FailNow(t, "the agent comes to the wrong one", "%s", o.log)
		case <-time.After(timeout):
			require.FailNow(t, "the agent does not come", "%s", o.log)
		}
		return nil
	}
	c := comes(one, two)
	c.greet(t)
	c.end(goaway.Err)
	c = comes(two, one)
	c.greet(t)
	c.end(goaway.Err)
	c = comes(one, two)
	c.end(goaway.Err) // it still shuts down, and takes nobody
	comes(two, one)
	o.stop()
}

// serveAtOnePort runs principals without TLS at several addresses of loopback until the test is over, and returns the port that all have.
func serveAtOnePort(t *testing.T, principals map[string]*principal) (port string) {
	t.Helper()
	listeners := make(map[*principal]net.Listener)
	for port = "0"; len(listeners) < len(principals); {
		for address, p := range principals {
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(address, port))
			if err != nil { // another program has the port at that address
				for _, earlier := range listeners {
					require.NoError(t, earlier.Close())
				}
				clear(listeners)
				port = "0"
				break
			}
			listeners[p] = listener
			_, port, err = net.SplitHostPort(listener.Addr().String())
			require.NoError(t, err)
		}
	}
	for p, listener := range listeners {
		server := grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()))
		syncv1.RegisterSyncServer(server, p)
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		t.Cleanup(func() {
			server.Stop()
			require.NoError(t, <-served)
		})
	}
	return port
}
