package dialer_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// dial opens a tunnel connection, and returns the agent's call for it and the spoke's end.
func (p *principal) dial(t *testing.T, over *listen, kube *tunnel.Listener, id string) (context.Context, net.Conn) {
	t.Helper()
	require.NoError(t, over.Send(&tunnelv1.DialRequest{Id: id, Target: string(tunnel.Kube)}))
	call := <-p.accepts
	conn, err := kube.Accept()
	require.NoError(t, err)
	return call, conn
}

// While its principal shuts down an agent is reached through that until it is through another one, and what a user has open through the old
// connection goes on.
func TestAgentLeavesADrainingPrincipalWithoutAnInterruption(t *testing.T) {
	withTunnel(t, func(t *testing.T, o *fixture, kube *tunnel.Listener) {
		c := <-o.principal.calls
		c.greet(t)
		old := <-o.principal.listens
		carried, terminal := o.principal.dial(t, old, kube, "1")
		after(time.Minute)

		asked := time.Now()
		c.end(goaway.Err)
		c = <-o.principal.calls
		require.Equal(t, distance, c.at.Sub(asked), "the agents were asked in turns, so none waits")
		require.NoError(t, old.Context().Err())
		meanwhile, another := o.principal.dial(t, old, kube, "2") // the hub still reaches the spoke
		c.greet(t)
		now := <-o.principal.listens
		old.ended <- status.Error(codes.Aborted, "the agent listens elsewhere")
		synctest.Wait()
		require.NoError(t, carried.Err())
		require.NoError(t, meanwhile.Err())
		require.NoError(t, now.Context().Err())
		require.NoError(t, o.Connected())
		require.NoError(t, terminal.Close())
		require.NoError(t, another.Close())
		<-carried.Done()
		<-meanwhile.Done()
		require.Contains(t, o.log.String(), "Principal is shutting down; reconnecting")
		require.NotContains(t, o.log.String(), "Connection to principal failed")
	}, true)
}

// When another agent of the same name comes, such as the Pod that takes this one's place in a rollout, what a user has open through this one goes on.
func TestSupersededAgentKeepsWhatIsOpen(t *testing.T) {
	withTunnel(t, func(t *testing.T, o *fixture, kube *tunnel.Listener) {
		c := <-o.principal.calls
		c.greet(t)
		old := <-o.principal.listens
		carried, terminal := o.principal.dial(t, old, kube, "1")
		after(time.Minute)

		c.end(errSuperseded)
		old.ended <- errSuperseded
		after(time.Second)
		require.Error(t, o.Connected())
		require.NoError(t, carried.Err())
		require.NoError(t, terminal.Close())
		<-carried.Done()
	}, true)
}

// A principal that says again and again that it shuts down has the agent connect hardly more often than one that hangs up, and the agent
// keeps one old connection at most.
func TestPrincipalThatAlwaysShutsDown(t *testing.T) {
	withTunnel(t, func(t *testing.T, o *fixture, _ *tunnel.Listener) {
		var listens []*listen
		c, want := <-o.principal.calls, 500*time.Millisecond
		for range 20 {
			c.greet(t)
			listens = append(listens, <-o.principal.listens)
			after(999 * time.Millisecond)
			for range 2 { // once more before it answers the hello: there is nothing to keep of that connection
				ended := time.Now()
				c.end(goaway.Err)
				c = <-o.principal.calls
				requireJittered(t, want, c.at.Sub(ended)-distance)
				want = min(2*want, 2*time.Second)
			}
		}
		synctest.Wait()
		for i, l := range listens {
			require.Equal(t, i == len(listens)-1, l.Context().Err() == nil, "call %d", i)
		}
	}, true)
}
