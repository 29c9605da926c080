package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// news is what a component is told.
type news struct {
	stream    tunnelv1.Relay_WatchClient
	agents    map[string]*tunnelv1.Agent
	owners    map[string]string // agents, by the instances of their applications
	there     map[string]string // what those are called on the spokes
	mentioned map[string]bool   // instances, in whatever way
}

// watch begins to watch as a component does.
func watch(t *testing.T, w *relaytest.Works) *news {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), relaytest.Patience)
	t.Cleanup(cancel)
	stream, err := tunnelv1.NewRelayClient(w.Hub).Watch(ctx, &tunnelv1.WatchRequest{})
	require.NoError(t, err)
	return &news{
		stream: stream, agents: make(map[string]*tunnelv1.Agent),
		owners: make(map[string]string), there: make(map[string]string), mentioned: make(map[string]bool),
	}
}

// hear takes one message in.
func (n *news) hear(t *testing.T) *tunnelv1.Roster {
	t.Helper()
	said, err := n.stream.Recv()
	require.NoError(t, err)
	for _, a := range said.GetAgents() {
		n.agents[a.GetName()] = a
	}
	for _, name := range said.GetRemoved() {
		delete(n.agents, name)
	}
	for _, a := range said.GetAssigned() {
		n.owners[a.GetInstance()], n.there[a.GetInstance()] = a.GetAgent(), a.GetSpokeInstance()
		n.mentioned[a.GetInstance()] = true
	}
	for _, instance := range said.GetUnassigned() {
		delete(n.owners, instance)
		n.mentioned[instance] = true
	}
	return said
}

// until takes news in until what is known is as it should be.
func (n *news) until(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		n.hear(t)
	}
}

func TestComponentsAreToldOfAgents(t *testing.T) {
	w := relaytest.Open(t)
	n := watch(t, w)
	n.until(t, func() bool { return n.agents["a"].GetConnected() && n.agents[relaytest.Echo].GetConnected() })
	require.Equal(t, "dev", n.agents["a"].GetBuild())
	require.Equal(t, "a", n.agents["a"].GetNamespace())
	require.WithinDuration(t, time.Now(), n.agents["a"].GetSince().AsTime(), time.Minute)
	require.Empty(t, n.agents["a"].GetServer())

	w.Directory.SetCluster("a", "https://a")
	n.until(t, func() bool { return n.agents["a"].GetServer() == "https://a" })
	w.Directory.SetCluster("b", "https://b")
	n.until(t, func() bool { return n.agents["b"] != nil && !n.agents["b"].GetConnected() })
	w.Disconnect()
	n.until(t, func() bool { return !n.agents["a"].GetConnected() })
	require.Equal(t, "dev", n.agents["a"].GetBuild(), "what it was is known still")
	w.Directory.RemoveCluster("b")
	n.until(t, func() bool { return n.agents["b"] == nil })
	w.Directory.RemoveCluster("a")
	n.until(t, func() bool { return n.agents["a"] == nil })
}

// The principal keeps nothing of an agent that has neither a connection nor a cluster Secret.
func TestAgentWithoutClusterSecretIsForgottenWhenItDisconnects(t *testing.T) {
	w := relaytest.Open(t)
	n := watch(t, w)
	n.until(t, func() bool { return n.agents["a"].GetConnected() })
	w.Disconnect()
	n.until(t, func() bool { return n.agents["a"] == nil })
	_, err := w.Dialer.Dial(t.Context(), "a", tunnel.Kube)
	require.ErrorIs(t, err, tunnel.ErrUnknown)
}

// What is told first stands in place of all that was known: whoever lost a principal that was restarted is not to take for
// gone what the new one has yet to find.
func TestNothingIsToldBeforeAllIsKnown(t *testing.T) {
	w := relaytest.OpenIncomplete(t)
	n := watch(t, w)
	_, err := w.Dialer.Dial(t.Context(), "nobody", tunnel.Kube) // on the same connection, and later
	require.ErrorContains(t, err, "no such agent")
	w.Directory.SetCluster("late", "https://late")
	w.Directory.SetComplete()
	require.False(t, n.hear(t).GetMore())
	require.NotNil(t, n.agents["late"])
}

func TestDrainBeforeAllIsKnown(t *testing.T) {
	w := relaytest.OpenIncomplete(t)
	n := watch(t, w)
	w.Drain()
	_, err := n.stream.Recv()
	require.ErrorContains(t, err, "shutting down")
}

// What one agent says of itself keeps no component from hearing of the others.
func TestBuildIsCut(t *testing.T) {
	w := relaytest.Open(t)
	for _, name := range []string{"talks", "talks-too"} {
		conn := w.Dial(t, name)
		defer conn.Close()
		_, err := tunnelv1.NewTunnelClient(conn).Listen(t.Context(), &tunnelv1.ListenRequest{Build: strings.Repeat("€", 1<<20)})
		require.NoError(t, err)
		n := watch(t, w)
		n.until(t, func() bool { return n.agents[name].GetConnected() })
		require.Equal(t, strings.Repeat("€", 21), n.agents[name].GetBuild())
		require.True(t, n.agents["a"].GetConnected())
	}
}

// However many agents there are and however much is known of them, no message is too large for a component.
func TestManyAgentsAreToldInSeveralMessages(t *testing.T) {
	w := relaytest.Open(t)
	const count = 15_000
	name := func(i int) string { return fmt.Sprintf("%s-%05d", strings.Repeat("a", 57), i) }
	change := func(server string) {
		for i := range count {
			w.Directory.SetCluster(name(i), "https://"+server+strings.Repeat("x", 200)+"?agentName="+name(i))
		}
	}
	change("first")
	w.Directory.SetCluster("large", "https://"+strings.Repeat("x", 1<<20)) // as much as a Secret holds
	n := watch(t, w)
	told, messages := 0, 0
	for more := true; more; messages++ {
		said, err := n.stream.Recv()
		require.NoError(t, err)
		told += len(said.GetAgents())
		require.Less(t, proto.Size(said), 5<<19)
		more = said.GetMore()
	}
	require.Equal(t, count+3, told)
	require.Greater(t, messages, 4)

	change("second")
	for told = 0; told < count; {
		said, err := n.stream.Recv()
		require.NoError(t, err)
		require.Less(t, proto.Size(said), 5<<19)
		require.False(t, said.GetMore(), "changes are each for itself")
		for _, a := range said.GetAgents() {
			if strings.HasPrefix(a.GetServer(), "https://second") {
				told++
			}
		}
	}
	require.Equal(t, count, told, "each is told once")
}

// What concerns all agents is for components alone, and what concerns one is for that one.
func TestOnlyComponentsReachAgents(t *testing.T) {
	w := relaytest.Open(t)
	agent := w.Dial(t, "a")
	defer agent.Close()
	_, err := tunnel.NewDialer(agent, "an agent").Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.ErrorContains(t, err, "--hub-components")
	told, err := tunnelv1.NewRelayClient(agent).Watch(t.Context(), &tunnelv1.WatchRequest{})
	require.NoError(t, err)
	_, err = told.Recv()
	require.Equal(t, codes.Unauthenticated, status.Code(err))

	listening, err := tunnelv1.NewTunnelClient(w.Hub).Listen(t.Context(), &tunnelv1.ListenRequest{})
	require.NoError(t, err)
	_, err = listening.Recv()
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "no agent")
}

// listen listens as an agent by its own hand.
func listen(t *testing.T, conn grpc.ClientConnInterface) tunnelv1.Tunnel_ListenClient {
	t.Helper()
	stream, err := tunnelv1.NewTunnelClient(conn).Listen(t.Context(), &tunnelv1.ListenRequest{})
	require.NoError(t, err)
	return stream
}

// accept takes up a conversation by its id, and returns how that ends.
func accept(t *testing.T, conn grpc.ClientConnInterface, ids ...string) error {
	t.Helper()
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{tunnel.MetadataDial: ids})
	stream, err := tunnelv1.NewTunnelClient(conn).Accept(ctx)
	require.NoError(t, err)
	_, err = stream.Recv()
	return err
}

// A conversation is taken up once, by the agent that was asked.
func TestConversationIsTakenUpOnceByItsAgent(t *testing.T) {
	w := relaytest.Open(t)
	n := watch(t, w)
	conn := w.Dial(t, "mine")
	defer conn.Close()
	calls := listen(t, conn)
	n.until(t, func() bool { return n.agents["mine"].GetConnected() })

	var work sync.WaitGroup
	defer work.Wait()
	dialled := make(chan net.Conn, 1)
	work.Go(func() {
		c, err := w.Dialer.Dial(t.Context(), "mine", tunnel.Redis)
		relaytest.Check(t, err)
		dialled <- c
	})
	dial, err := calls.Recv()
	require.NoError(t, err)
	require.Equal(t, "redis", dial.GetTarget())

	other := w.Dial(t, "another")
	defer other.Close()
	require.Equal(t, codes.NotFound, status.Code(accept(t, other, dial.GetId())), "it is not asked")
	require.Equal(t, codes.NotFound, status.Code(accept(t, conn, "guessed")))
	require.Equal(t, codes.InvalidArgument, status.Code(accept(t, conn)))
	require.Equal(t, codes.InvalidArgument, status.Code(accept(t, conn, dial.GetId(), dial.GetId())))

	ctx := metadata.AppendToOutgoingContext(t.Context(), tunnel.MetadataDial, dial.GetId())
	mine, err := tunnelv1.NewTunnelClient(conn).Accept(ctx)
	require.NoError(t, err)
	c := <-dialled
	require.Equal(t, codes.NotFound, status.Code(accept(t, conn, dial.GetId())), "it is taken")
	require.NoError(t, mine.Send(&tunnelv1.Frame{Data: []byte("word"), End: tunnelv1.End_END_CLOSE}))
	require.NoError(t, mine.CloseSend())
	said, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "word", string(said))
	require.NoError(t, c.Close())
	for err == nil {
		_, err = mine.Recv()
	}
	require.ErrorIs(t, err, io.EOF)
}

// Of two agents by one name the newer is reached. Who waited for the older is put through to it.
func TestNewerAgentIsReached(t *testing.T) {
	w := relaytest.Open(t)
	n := watch(t, w)
	older, newer := w.Dial(t, "twin"), w.Dial(t, "twin")
	defer older.Close()
	defer newer.Close()
	first := listen(t, older)
	n.until(t, func() bool { return n.agents["twin"].GetConnected() })

	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	work.Go(func() { _, _ = w.Dialer.Dial(ctx, "twin", tunnel.Kube) })
	_, err := first.Recv()
	require.NoError(t, err)
	second := listen(t, newer)
	dial, err := second.Recv()
	require.NoError(t, err, "the question goes to the newer one")
	require.Equal(t, "kube", dial.GetTarget())
	_, err = first.Recv()
	require.Equal(t, codes.Aborted, status.Code(err))
	n.until(t, func() bool { return n.agents["twin"].GetConnected() })
}

// A principal that ends tells everybody to come again.
func TestDrain(t *testing.T) {
	w := relaytest.Open(t)
	c, err := w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	_, err = c.Write([]byte("word"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 4))
	require.NoError(t, err)
	conn := w.Dial(t, "listening")
	defer conn.Close()
	n := watch(t, w)
	calls := listen(t, conn)
	n.until(t, func() bool { return n.agents["listening"].GetConnected() })

	w.Drain()
	_, err = calls.Recv()
	require.ErrorContains(t, err, "shutting down")
	_, err = c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "shutting down")
	require.NoError(t, c.Close())
	_, err = w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.ErrorContains(t, err, "shutting down")
	for err = nil; err == nil; {
		_, err = n.stream.Recv()
	}
	require.ErrorContains(t, err, "shutting down")
}
