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

// component is a component's view of the directory.
type component struct {
	stream         tunnelv1.Relay_WatchClient
	agents         map[string]*tunnelv1.Agent
	owners         map[string]string // agents, by the instances of their applications
	spokeInstances map[string]string // of the same
	mentioned      map[string]bool   // instances, whatever was update of them
}

// watch watches the directory as a component does.
func watch(t *testing.T, w *relaytest.World) *component {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), relaytest.Timeout)
	t.Cleanup(cancel)
	stream, err := tunnelv1.NewRelayClient(w.Hub).Watch(ctx, &tunnelv1.WatchRequest{})
	require.NoError(t, err)
	return &component{
		stream: stream, agents: make(map[string]*tunnelv1.Agent),
		owners: make(map[string]string), spokeInstances: make(map[string]string), mentioned: make(map[string]bool),
	}
}

// receive takes in one update.
func (c *component) receive(t *testing.T) *tunnelv1.DirectoryUpdate {
	t.Helper()
	update, err := c.stream.Recv()
	require.NoError(t, err)
	for _, a := range update.GetAgents() {
		c.agents[a.GetName()] = a
	}
	for _, name := range update.GetRemoved() {
		delete(c.agents, name)
	}
	for _, a := range update.GetAssigned() {
		c.owners[a.GetInstance()], c.spokeInstances[a.GetInstance()] = a.GetAgent(), a.GetSpokeInstance()
		c.mentioned[a.GetInstance()] = true
	}
	for _, instance := range update.GetUnassigned() {
		delete(c.owners, instance)
		c.mentioned[instance] = true
	}
	return update
}

// until takes in updates until something is true.
func (c *component) until(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		c.receive(t)
	}
}

func TestDirectorySendsAgents(t *testing.T) {
	w := relaytest.Open(t)
	seen := watch(t, w)
	seen.until(t, func() bool { return seen.agents["a"].GetConnected() && seen.agents[relaytest.Echo].GetConnected() })
	require.Equal(t, "dev", seen.agents["a"].GetBuild())
	require.Equal(t, "a", seen.agents["a"].GetNamespace())
	require.WithinDuration(t, time.Now(), seen.agents["a"].GetSince().AsTime(), time.Minute)
	require.Empty(t, seen.agents["a"].GetServer())

	w.Directory.SetCluster("a", "https://a")
	seen.until(t, func() bool { return seen.agents["a"].GetServer() == "https://a" })
	w.Directory.SetCluster("b", "https://b")
	seen.until(t, func() bool { return seen.agents["b"] != nil && !seen.agents["b"].GetConnected() })
	w.Disconnect()
	seen.until(t, func() bool { return !seen.agents["a"].GetConnected() })
	require.Equal(t, "dev", seen.agents["a"].GetBuild(), "the last build is kept")
	w.Directory.RemoveCluster("b")
	seen.until(t, func() bool { return seen.agents["b"] == nil })
	w.Directory.RemoveCluster("a")
	seen.until(t, func() bool { return seen.agents["a"] == nil })
}

// The principal keeps nothing of an agent that has neither a connection nor a cluster Secret.
func TestAgentWithoutClusterSecretIsForgottenWhenItDisconnects(t *testing.T) {
	w := relaytest.Open(t)
	seen := watch(t, w)
	seen.until(t, func() bool { return seen.agents["a"].GetConnected() })
	w.Disconnect()
	seen.until(t, func() bool { return seen.agents["a"] == nil })
	_, err := w.Dialer.Dial(t.Context(), "a", tunnel.Kube)
	require.ErrorIs(t, err, tunnel.ErrUnknownAgent)
}

// A component whose principal restarted replaces what it knew by the first update. It must not miss what the new principal
// has yet to find.
func TestNoUpdateBeforeDirectoryIsComplete(t *testing.T) {
	w := relaytest.OpenIncomplete(t)
	seen := watch(t, w)
	_, err := w.Dialer.Dial(t.Context(), "nobody", tunnel.Kube) // on the same connection, and later
	require.ErrorContains(t, err, "no such agent")
	w.Directory.SetCluster("late", "https://late")
	w.Directory.SetComplete()
	require.False(t, seen.receive(t).GetMore())
	require.NotNil(t, seen.agents["late"])
}

func TestDrainBeforeDirectoryIsComplete(t *testing.T) {
	w := relaytest.OpenIncomplete(t)
	seen := watch(t, w)
	w.Drain()
	_, err := seen.stream.Recv()
	require.ErrorContains(t, err, "shutting down")
}

// An agent cannot keep components from the others by a version that no message has room for.
func TestLongBuildIsTruncated(t *testing.T) {
	w := relaytest.Open(t)
	for _, name := range []string{"talks", "talks-too"} {
		conn := w.ClientConn(t, name)
		defer conn.Close()
		_, err := tunnelv1.NewTunnelClient(conn).Listen(t.Context(), &tunnelv1.ListenRequest{Build: strings.Repeat("€", 1<<20)})
		require.NoError(t, err)
		seen := watch(t, w)
		seen.until(t, func() bool { return seen.agents[name].GetConnected() })
		require.Equal(t, strings.Repeat("€", 21), seen.agents[name].GetBuild())
		require.True(t, seen.agents["a"].GetConnected())
	}
}

// However many agents there are, no message is too large for a component.
func TestManyAgentsAreSentInSeveralMessages(t *testing.T) {
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
	seen := watch(t, w)
	sent, messages := 0, 0
	for more := true; more; messages++ {
		update, err := seen.stream.Recv()
		require.NoError(t, err)
		sent += len(update.GetAgents())
		require.Less(t, proto.Size(update), 5<<19)
		more = update.GetMore()
	}
	require.Equal(t, count+3, sent)
	require.Greater(t, messages, 4)

	change("second")
	for sent = 0; sent < count; {
		update, err := seen.stream.Recv()
		require.NoError(t, err)
		require.Less(t, proto.Size(update), 5<<19)
		require.False(t, update.GetMore(), "only the first update has several parts")
		for _, a := range update.GetAgents() {
			if strings.HasPrefix(a.GetServer(), "https://second") {
				sent++
			}
		}
	}
	require.Equal(t, count, sent, "each is sent once")
}

// Agents cannot dial or watch, and components cannot listen.
func TestOnlyComponentsReachAgents(t *testing.T) {
	w := relaytest.Open(t)
	agent := w.ClientConn(t, "a")
	defer agent.Close()
	_, err := tunnel.NewDialer(agent, "an agent", "").Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.ErrorContains(t, err, "--hub-components")
	watching, err := tunnelv1.NewRelayClient(agent).Watch(t.Context(), &tunnelv1.WatchRequest{})
	require.NoError(t, err)
	_, err = watching.Recv()
	require.Equal(t, codes.Unauthenticated, status.Code(err))

	listening, err := tunnelv1.NewTunnelClient(w.Hub).Listen(t.Context(), &tunnelv1.ListenRequest{})
	require.NoError(t, err)
	_, err = listening.Recv()
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "no agent")
}

// A component that was taken over reaches no target but its own: redisproxy, which everybody in the hub's network reaches, does not
// come to an API server past kubeproxy's checks.
func TestComponentDialsNoTargetButItsOwn(t *testing.T) {
	w := relaytest.Open(t)
	proxy := w.ClientConn(t, relaytest.RedisComponent)
	defer proxy.Close()
	dialer := tunnel.NewDialer(proxy, "argocd-agent-kubeproxy", "") // what it says it is does not count
	defer dialer.Wait()
	_, err := dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.ErrorContains(t, err, `component "argocd-agent-test-redis" may dial redis at agents, and not kube`)
	require.ErrorContains(t, err, "--hub-components")
	conn, err := dialer.Dial(t.Context(), relaytest.Echo, tunnel.Redis)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// listen opens a Listen stream as an agent.
func listen(t *testing.T, conn grpc.ClientConnInterface) tunnelv1.Tunnel_ListenClient {
	t.Helper()
	stream, err := tunnelv1.NewTunnelClient(conn).Listen(t.Context(), &tunnelv1.ListenRequest{})
	require.NoError(t, err)
	return stream
}

// accept accepts a connection by its id, and returns how that ends.
func accept(t *testing.T, conn grpc.ClientConnInterface, ids ...string) error {
	t.Helper()
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{tunnel.MetadataDial: ids})
	stream, err := tunnelv1.NewTunnelClient(conn).Accept(ctx)
	require.NoError(t, err)
	_, err = stream.Recv()
	return err
}

// Only the agent that was dialled can accept a connection, and only once.
func TestConnectionIsAcceptedOnceByItsAgent(t *testing.T) {
	w := relaytest.Open(t)
	seen := watch(t, w)
	conn := w.ClientConn(t, "mine")
	defer conn.Close()
	calls := listen(t, conn)
	seen.until(t, func() bool { return seen.agents["mine"].GetConnected() })

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

	other := w.ClientConn(t, "another")
	defer other.Close()
	require.Equal(t, codes.NotFound, status.Code(accept(t, other, dial.GetId())), "it was not dialled")
	require.Equal(t, codes.NotFound, status.Code(accept(t, conn, "guessed")))
	require.Equal(t, codes.InvalidArgument, status.Code(accept(t, conn)))
	require.Equal(t, codes.InvalidArgument, status.Code(accept(t, conn, dial.GetId(), dial.GetId())))

	ctx := metadata.AppendToOutgoingContext(t.Context(), tunnel.MetadataDial, dial.GetId())
	mine, err := tunnelv1.NewTunnelClient(conn).Accept(ctx)
	require.NoError(t, err)
	c := <-dialled
	require.Equal(t, codes.NotFound, status.Code(accept(t, conn, dial.GetId())), "it was accepted before")
	require.NoError(t, mine.Send(&tunnelv1.Frame{Data: []byte("word"), End: tunnelv1.End_END_CLOSE}))
	require.NoError(t, mine.CloseSend())
	update, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "word", string(update))
	require.NoError(t, c.Close())
	for err == nil {
		_, err = mine.Recv()
	}
	require.ErrorIs(t, err, io.EOF)
}

// Of two agents of one name the newer is dialled, also by who waited for the older.
func TestNewerAgentOfSameNameIsDialled(t *testing.T) {
	w := relaytest.Open(t)
	seen := watch(t, w)
	older, newer := w.ClientConn(t, "twin"), w.ClientConn(t, "twin")
	defer older.Close()
	defer newer.Close()
	first := listen(t, older)
	seen.until(t, func() bool { return seen.agents["twin"].GetConnected() })

	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	work.Go(func() { _, _ = w.Dialer.Dial(ctx, "twin", tunnel.Kube) })
	_, err := first.Recv()
	require.NoError(t, err)
	second := listen(t, newer)
	dial, err := second.Recv()
	require.NoError(t, err, "the newer one is dialled")
	require.Equal(t, "kube", dial.GetTarget())
	_, err = first.Recv()
	require.Equal(t, codes.Aborted, status.Code(err))
	seen.until(t, func() bool { return seen.agents["twin"].GetConnected() })
}

// A principal that shuts down asks agents and components to connect again.
func TestDrain(t *testing.T) {
	w := relaytest.Open(t)
	c, err := w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	_, err = c.Write([]byte("word"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 4))
	require.NoError(t, err)
	conn := w.ClientConn(t, "listening")
	defer conn.Close()
	seen := watch(t, w)
	calls := listen(t, conn)
	seen.until(t, func() bool { return seen.agents["listening"].GetConnected() })

	w.Drain()
	_, err = calls.Recv()
	require.ErrorContains(t, err, "shutting down")
	_, err = c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "shutting down")
	require.NoError(t, c.Close())
	_, err = w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.ErrorContains(t, err, "shutting down")
	for err = nil; err == nil; {
		_, err = seen.stream.Recv()
	}
	require.ErrorContains(t, err, "shutting down")
}

// A principal that drains goes on until its agents listen elsewhere, and then until what is carried has ended, or no time is left.
func TestDrainWaitsForAgentsAndThenForConnections(t *testing.T) {
	w := relaytest.Open(t)
	c, err := w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	timed, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w.Relay.Drain(timed, timed, func() { close(gone) })
	}()
	requireEcho(t, w) // agents are reached meanwhile

	two := w.Another(t, "two")
	for _, name := range []string{"a", relaytest.Echo} {
		select {
		case <-gone:
			require.FailNow(t, "an agent still listens", name)
		default:
		}
		elsewhere := two.ClientConn(t, name)
		defer elsewhere.Close()
		listen(t, elsewhere)
	}
	<-gone
	_, err = c.Write([]byte("word"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 4))
	require.NoError(t, err, "what is carried goes on")
	select {
	case <-done:
		require.FailNow(t, "a connection is open")
	default:
	}
	require.NoError(t, c.Close())
	<-done
}

// One agent that stays although it was asked to go keeps no other's users from leaving in time.
func TestDrainDoesNotWaitForOneAgentThatStays(t *testing.T) {
	w := relaytest.Open(t)
	c, err := w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	staying := w.ClientConn(t, "staying")
	defer staying.Close()
	listen(t, staying)
	patience, cancel := context.WithCancel(t.Context())
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w.Relay.Drain(t.Context(), patience, func() { close(gone) })
	}()
	cancel()
	<-gone
	calls, err := tunnelv1.NewTunnelClient(staying).Listen(t.Context(), &tunnelv1.ListenRequest{})
	require.NoError(t, err)
	_, err = calls.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "it may not begin again: %v", err)
	_, err = c.Write([]byte("word"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 4))
	require.NoError(t, err, "what is carried goes on")
	require.NoError(t, c.Close())
	<-done
}

// Each time that an agent begins to listen all principals and components are told.
func TestAgentThatListensAgainAndAgainIsHeldUp(t *testing.T) {
	w := relaytest.Open(t)
	conn := w.ClientConn(t, "restless")
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client, ended := tunnelv1.NewTunnelClient(conn), make(chan error, 100)
	for range cap(ended) {
		calls, err := client.Listen(ctx, &tunnelv1.ListenRequest{})
		require.NoError(t, err)
		go func() {
			_, err := calls.Recv() // it ends with the next that begins
			ended <- err
		}()
	}
	var err error
	for status.Code(err) != codes.ResourceExhausted {
		err = <-ended
	}
	require.ErrorContains(t, err, "begins to listen too often")
	requireEcho(t, w) // others are not
}

// An agent that stays although it was asked to go, and a user who stays, do not keep a principal for ever.
func TestDrainEndsWhenNoTimeIsLeft(t *testing.T) {
	w := relaytest.Open(t)
	c, err := w.Dialer.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	timed, cancel := context.WithCancel(t.Context())
	cancel()
	said := false
	w.Relay.Drain(timed, timed, func() { said = true })
	require.True(t, said)
	require.NoError(t, c.Close())
}
