package relay_test

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	lookupv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/lookup/v1"
	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// requireEcho requires that the agent Echo is reached from a principal.
func requireEcho(t *testing.T, w *relaytest.World) {
	t.Helper()
	c, err := w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	large := make([]byte, 3<<20)
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(large)
		written <- err
	}()
	_, err = io.ReadFull(c, make([]byte, len(large)))
	require.NoError(t, err)
	require.NoError(t, <-written)
	require.NoError(t, c.Close())
}

func TestAgentIsReachedThroughAnotherPrincipal(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	requireEcho(t, two)
	requireEcho(t, one)
	_, err := two.Dialer.Dial(t.Context(), "nobody", tunnel.Kube)
	require.ErrorIs(t, err, tunnel.ErrUnknownAgent)
}

// Where the newest Listen stream is, there the agent is dialled; the older one is told why it ends.
func TestNewestPrincipalOfAnAgentIsDialled(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	older, newer := one.ClientConn(t, "twin"), two.ClientConn(t, "twin")
	defer older.Close()
	defer newer.Close()
	first := listen(t, older)
	two.AwaitConnected(t, "twin", true)
	second := listen(t, newer)
	_, err := first.Recv()
	require.Equal(t, codes.Aborted, status.Code(err))
	require.ErrorContains(t, err, "another agent connected by the same name")
	go func() { _, _ = one.Dialer.Dial(t.Context(), "twin", tunnel.Redis) }()
	dial, err := second.Recv()
	require.NoError(t, err)
	require.Equal(t, "redis", dial.GetTarget())
}

// Something before the principals may send each stream of an agent to another one.
func TestConnectionIsAcceptedAtAnotherPrincipal(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	listening, accepting := one.ClientConn(t, "spread"), two.ClientConn(t, "spread")
	defer listening.Close()
	defer accepting.Close()
	calls := listen(t, listening)
	two.AwaitConnected(t, "spread", true)
	for name, dialing := range map[string]*relaytest.World{"of the one that listens": one, "of the other": two} {
		t.Run(name, func(t *testing.T) {
			said := make(chan string, 1)
			go func() {
				c, err := dialing.Dialer.Dial(t.Context(), "spread", tunnel.Redis)
				if relaytest.Check(t, err); err != nil {
					said <- ""
					return
				}
				text, err := io.ReadAll(c)
				relaytest.Check(t, err)
				relaytest.Check(t, c.Close())
				said <- string(text)
			}()
			dial, err := calls.Recv()
			require.NoError(t, err)
			other := two.ClientConn(t, "another")
			defer other.Close()
			require.Equal(t, codes.NotFound, status.Code(accept(t, other, dial.GetId())), "it was not dialled, wherever it says so")
			stream, err := tunnelv1.NewTunnelClient(accepting).Accept(metadata.AppendToOutgoingContext(t.Context(), tunnel.MetadataDial, dial.GetId()))
			require.NoError(t, err)
			require.NoError(t, stream.Send(&tunnelv1.Frame{Data: []byte("word"), End: tunnelv1.End_END_CLOSE}))
			require.NoError(t, stream.CloseSend())
			require.Equal(t, "word", <-said)
			for err == nil {
				_, err = stream.Recv()
			}
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

// Only a principal forwards, and what it forwards goes no further: it learns at once that the agent is elsewhere.
func TestDialIsForwardedOnceAndByPrincipalsOnly(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	dial := func(name string) error {
		conn := two.ClientConn(t, name)
		defer conn.Close()
		stream, err := tunnelv1.NewRelayClient(conn).Dial(metadata.AppendToOutgoingContext(t.Context(),
			tunnel.MetadataAgent, relaytest.Echo, tunnel.MetadataTarget, string(tunnel.Kube), "tunnel-hops", "1"))
		require.NoError(t, err)
		_, err = stream.Recv()
		return err
	}
	require.Equal(t, codes.PermissionDenied, status.Code(dial(relaytest.Component)))
	for { // on a machine that stands still it may take as long as if two waited for the agent, which it must not do
		began := time.Now()
		err := dial(relaytest.Principal)
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.ErrorContains(t, err, "another principal")
		if time.Since(began) < 3*time.Second {
			return
		}
	}
}

// Agents and other components cannot speak as principals do.
func TestOnlyPrincipalsArePeers(t *testing.T) {
	w := relaytest.Open(t)
	for name, code := range map[string]codes.Code{"a": codes.Unauthenticated, relaytest.Component: codes.PermissionDenied} {
		conn := w.ClientConn(t, name)
		defer conn.Close()
		watching, err := peerv1.NewPeerClient(conn).Watch(t.Context(), &peerv1.WatchRequest{})
		require.NoError(t, err)
		_, err = watching.Recv()
		require.Equal(t, code, status.Code(err), name)
		accepting, err := peerv1.NewPeerClient(conn).Accept(metadata.AppendToOutgoingContext(t.Context(), tunnel.MetadataAgent, "a", tunnel.MetadataDial, "one.x"))
		require.NoError(t, err)
		_, err = accepting.Recv()
		require.Equal(t, code, status.Code(err), name)
	}
}

// What a component reads that only follows which principal has which agent is no more than that.
func TestDirectoryIsForComponentsThatDial(t *testing.T) {
	w := relaytest.Open(t)
	for name, code := range map[string]codes.Code{
		"a": codes.Unauthenticated, relaytest.Principal: codes.PermissionDenied, relaytest.Component: codes.OK, relaytest.RedisComponent: codes.OK,
	} {
		conn := w.ClientConn(t, name)
		defer conn.Close()
		watching, err := tunnelv1.NewRelayClient(conn).Watch(t.Context(), &tunnelv1.WatchRequest{})
		require.NoError(t, err)
		_, err = watching.Recv()
		require.Equal(t, code, status.Code(err), name)
	}
}

// lookUp asks a principal by gRPC's route lookup service which clusters a request with these keys goes to.
func lookUp(t *testing.T, conn grpc.ClientConnInterface, keys map[string]string) ([]string, error) {
	t.Helper()
	answer := &lookupv1.RouteLookupResponse{}
	err := conn.Invoke(t.Context(), "/grpc.lookup.v1.RouteLookupService/RouteLookup", &lookupv1.RouteLookupRequest{KeyMap: keys}, answer)
	return answer.GetTargets(), err
}

func TestRouteLookupIsForProxiesOnly(t *testing.T) {
	w := relaytest.Open(t)
	for name, code := range map[string]codes.Code{"a": codes.Unauthenticated, relaytest.Principal: codes.PermissionDenied} {
		conn := w.ClientConn(t, name)
		defer conn.Close()
		_, err := lookUp(t, conn, map[string]string{"agent": relaytest.Echo})
		require.Equal(t, code, status.Code(err), name)
	}
	_, err := lookUp(t, w.Hub, nil)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// Whichever principal is asked says where the agent is.
func TestRouteLookupLeadsToThePrincipalOfTheAgent(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	for _, asked := range []*relaytest.World{one, two} {
		targets, err := lookUp(t, asked.Hub, map[string]string{"agent": relaytest.Echo})
		require.NoError(t, err)
		require.Equal(t, []string{"principal-one", "principals-looked-up", "principal-two"}, targets)
		targets, err = lookUp(t, asked.Hub, map[string]string{"agent": "nobody"})
		require.NoError(t, err)
		require.Equal(t, []string{"principals-looked-up", "principal-one", "principal-two"}, targets)
	}
}

// A principal that goes ends the conversations through it, and no others.
func TestPrincipalThatGoesEndsWhatGoesThroughIt(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	through, err := two.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	beside, err := one.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	two.Kill()
	_, err = through.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = beside.Write([]byte("word"))
	require.NoError(t, err)
	_, err = io.ReadFull(beside, make([]byte, 4))
	require.NoError(t, err)
	require.NoError(t, beside.Close())
	require.NoError(t, through.Close())
}

// dialed dials an agent beside the test, and says how that ended.
func dialed(t *testing.T, from *relaytest.World, agent string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		c, err := from.Dialer.Dial(t.Context(), agent, tunnel.Kube)
		if err == nil {
			err = c.Close()
		}
		ended <- err
	}()
	return ended
}

// What is dialled while the agent is on its way to another principal reaches it there.
func TestDialWaitsForAnAgentThatIsAboutToReturn(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	one.Directory.SetCluster("roaming", "https://hub")
	two.Directory.SetCluster("roaming", "https://hub")
	for { // on a machine that stands still the agent may come too late
		before := one.Listen(t, "roaming")
		two.AwaitConnected(t, "roaming", true)
		before()
		two.AwaitConnected(t, "roaming", false)
		ended := dialed(t, two, "roaming")
		listener := tunnel.NewListener(tunnel.Kube)
		after := one.Agent(t, "roaming", listener)
		err := <-ended
		after()
		require.NoError(t, listener.Close())
		if err == nil {
			return
		}
		require.ErrorIs(t, err, tunnel.ErrNotConnected)
	}
}

// What was forwarded to the principal that the agent has just left for a third one reaches it there.
func TestDialIsForwardedAgainWhenTheAgentHasMoved(t *testing.T) {
	one := relaytest.Open(t)
	two, three := one.Another(t, "two"), one.Another(t, "three")
	for _, w := range []*relaytest.World{one, two, three} {
		w.Directory.SetCluster("mover", "https://hub")
	}
	for { // on a machine that stands still the agent may come too late
		leaving := two.ClientConn(t, "mover")
		calls := listen(t, leaving)
		one.AwaitConnected(t, "mover", true)
		ended := dialed(t, one, "mover")
		_, err := calls.Recv() // which nobody answers
		require.NoError(t, err)
		listener := tunnel.NewListener(tunnel.Kube)
		leave := three.Agent(t, "mover", listener)
		err = <-ended
		leave()
		require.NoError(t, listener.Close())
		require.NoError(t, leaving.Close())
		if err == nil {
			return
		}
		require.ErrorIs(t, err, tunnel.ErrNotConnected)
		one.AwaitConnected(t, "mover", false)
	}
}

// The others learn of a principal that shuts down, whether they are connected or connect then, and that it serves its agents meanwhile.
func TestPeersLearnThatAPrincipalShutsDown(t *testing.T) {
	one := relaytest.Open(t)
	two := one.Another(t, "two")
	require.False(t, two.Peers.All()["one"].Draining)
	one.Roster.Drain()
	three := one.Another(t, "three")
	for _, other := range []*relaytest.World{two, three} {
		require.Eventually(t, func() bool { return other.Peers.All()["one"].Draining }, relaytest.Timeout, time.Millisecond) // nothing else shows it here
		requireEcho(t, other)
	}
}
