package directory_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory/directorytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follow returns a directory that watches a principal until the test is over.
func follow(t *testing.T, hub grpc.ClientConnInterface) *directory.Directory {
	t.Helper()
	r := directory.New(hub, nil, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, r.Ready(), "has not answered yet")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func until(t *testing.T, r *directory.Directory, is func() bool) {
	t.Helper()
	directorytest.Until(t, r, relaytest.Timeout, is)
}

func TestDirectoryFollowsThePrincipal(t *testing.T) {
	w := relaytest.Open(t)
	r := follow(t, w.Hub)
	until(t, r, func() bool { a, ok := r.Agent("a"); return ok && a.Connected })
	require.NoError(t, r.Ready())
	_, known := r.Agent("nobody")
	require.False(t, known)

	agent, instance, ok := r.Owner("a_guestbook")
	require.True(t, ok)
	require.Equal(t, "a", agent)
	require.Equal(t, "guestbook", instance)
	hub, ok := r.Hub("a", "guestbook")
	require.True(t, ok)
	require.Equal(t, "a_guestbook", hub)
	_, ok = r.Hub("nobody", "guestbook")
	require.False(t, ok)
	for _, own := range []string{"guestbook", "team-x_guestbook", "a_", "", "a", "_guestbook"} {
		_, _, ok = r.Owner(own)
		require.False(t, ok, "%q is the hub's own", own)
	}

	w.Directory.SetCluster("a", "https://a")
	until(t, r, func() bool { _, ok := r.Server("https://a"); return ok })
	w.Directory.SetCluster("a", "https://elsewhere")
	until(t, r, func() bool { _, ok := r.Server("https://elsewhere"); return ok })
	_, ok = r.Server("https://a")
	require.False(t, ok)

	w.Disconnect()
	until(t, r, func() bool { a, _ := r.Agent("a"); return !a.Connected })
	_, _, ok = r.Owner("a_guestbook")
	require.True(t, ok, "it belongs to the agent also while that is not connected")
	w.Directory.RemoveCluster("a")
	until(t, r, func() bool { return len(r.All()) == 1 })
	require.Equal(t, relaytest.Echo, r.All()[0].Name)
	_, _, ok = r.Owner("a_guestbook")
	require.False(t, ok)
}

// Where agents have no namespaces of their own, applications are assigned one by one.
func TestOwnersByAssignment(t *testing.T) {
	const berlin, paris = relaytest.ByName + "-berlin", relaytest.ByName + "-paris"
	w := relaytest.Open(t)
	r := follow(t, w.Hub)
	owner := func(instance string) string {
		agent, _, _ := r.Owner(instance)
		return agent
	}
	w.Directory.SetCluster(berlin, "https://berlin")
	w.Directory.Assign("shop", berlin, "shop")
	w.Directory.Assign("team_shop", berlin, "team_shop")
	w.Directory.Assign("elsewhere", "prod-eu", "elsewhere")
	until(t, r, func() bool { return owner("shop") == berlin && owner("team_shop") == berlin })
	require.Empty(t, owner("elsewhere"), "its agent does not exist")
	hub, ok := r.Hub(berlin, "team_shop")
	require.True(t, ok)
	require.Equal(t, "team_shop", hub)

	w.Directory.SetCluster(paris, "https://paris")
	w.Directory.Assign("team_shop", paris, "team_shop")
	until(t, r, func() bool { return owner("team_shop") == paris })
	_, ok = r.Hub(berlin, "team_shop")
	require.False(t, ok)
	w.Directory.RemoveCluster(paris)
	until(t, r, func() bool { return owner("team_shop") == "" })
	require.Equal(t, berlin, owner("shop"))
}

func TestDirectoryIsKeptWhileThePrincipalIsDown(t *testing.T) {
	w := relaytest.Open(t)
	r := follow(t, w.Hub)
	until(t, r, func() bool { return len(r.All()) == 2 })
	_, reason := r.Lost()
	require.NoError(t, reason)
	before := time.Now()
	w.Drain()
	until(t, r, func() bool { return r.Ready() != nil })
	require.ErrorContains(t, r.Ready(), "shutting down")
	since, reason := r.Lost()
	require.ErrorContains(t, reason, "shutting down")
	require.WithinRange(t, since, before, time.Now())
	_, _, ok := r.Owner("a_guestbook")
	require.True(t, ok)
	_, known := r.Agent("a")
	require.True(t, known)
}

func TestManyAgents(t *testing.T) {
	w := relaytest.Open(t)
	const count = 20_000
	for i := range count {
		name := fmt.Sprintf("%s-%05d", strings.Repeat("a", 57), i)
		w.Directory.SetCluster(name, "https://argocd-agent-resource-proxy:9090?agentName="+name)
	}
	r := follow(t, w.Hub)
	until(t, r, func() bool { return r.Ready() == nil })
	require.Len(t, r.All(), count+2, "it is ready only with all of them")
}

// relay is a principal that sends the updates of a test.
type relay struct {
	tunnelv1.UnimplementedRelayServer
	updates chan *tunnelv1.DirectoryUpdate // nil ends the call
}

// Watch implements the service.
func (p relay) Watch(_ *tunnelv1.WatchRequest, stream tunnelv1.Relay_WatchServer) error {
	for {
		select {
		case update := <-p.updates:
			if update == nil {
				return status.Error(codes.Unavailable, "cut off")
			}
			if err := stream.Send(update); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// connect returns a connection to the principal, until the test is over.
func (p relay) connect(t *testing.T) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	tunnelv1.RegisterRelayServer(server, p)
	var serving sync.WaitGroup
	serving.Go(func() { relaytest.Check(t, server.Serve(listener)) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { relaytest.Check(t, conn.Close()) })
	return conn
}

// The parts of a first update count when the last has come: what only comes late must not seem to be gone.
func TestFirstUpdateInParts(t *testing.T) {
	p := relay{updates: make(chan *tunnelv1.DirectoryUpdate)}
	part := func(more bool, names ...string) *tunnelv1.DirectoryUpdate {
		update := &tunnelv1.DirectoryUpdate{More: more}
		for _, name := range names {
			update.Agents = append(update.Agents, &tunnelv1.Agent{Name: name, Namespace: name, Server: "https://" + name})
		}
		return update
	}
	names := func(r *directory.Directory) (all string) {
		for _, a := range r.All() {
			all += a.Name
		}
		return all
	}
	r := follow(t, p.connect(t))
	p.updates <- part(true, "a")
	p.updates <- part(true, "b")
	require.Error(t, r.Ready(), "an agent may still come in a later part")
	require.Empty(t, r.All())
	p.updates <- part(false, "c")
	until(t, r, func() bool { return r.Ready() == nil })
	require.Equal(t, "abc", names(r))
	p.updates <- part(false, "d")
	until(t, r, func() bool { return names(r) == "abcd" })

	// Another call begins anew, and the old directory is kept until it is complete.
	p.updates <- nil
	until(t, r, func() bool { return r.Ready() != nil })
	lost, _ := r.Lost()
	p.updates <- part(true, "d")
	p.updates <- nil
	p.updates <- part(true, "d", "e")
	require.Equal(t, "abcd", names(r))
	since, reason := r.Lost()
	require.ErrorContains(t, reason, "cut off")
	require.Equal(t, lost, since, "attempts that fail change nothing of that")
	p.updates <- part(false, "f")
	until(t, r, func() bool { return r.Ready() == nil })
	require.Equal(t, "def", names(r))
	_, ok := r.Server("https://a")
	require.False(t, ok)
	_, _, ok = r.Owner("a_guestbook")
	require.False(t, ok)
}

// Components refuse whom the principal does, and nobody before they know.
func TestDirectoryHasTheBlocklist(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.SetBlocked([]string{"agent.a"})
	r := directory.New(w.Hub, nil, slog.New(slog.DiscardHandler))
	_, err := r.Blocked()
	require.ErrorContains(t, err, "has not answered yet")
	r = follow(t, w.Hub)
	blocked := func(want ...string) func() bool {
		return func() bool {
			list, err := r.Blocked()
			return err == nil && strings.Join(list.Keys(), " ") == strings.Join(want, " ")
		}
	}
	until(t, r, blocked("agent.a"))
	w.Directory.SetBlocked([]string{"agent.a", "agent.echo"})
	until(t, r, blocked("agent.a", "agent.echo"))
	w.Disconnect()
	_, err = w.Dialer.Dial(t.Context(), "a", tunnel.Kube)
	require.ErrorContains(t, err, "argocd-agentctl agent unblock a")
	w.Directory.SetBlocked(nil)
	until(t, r, blocked())
	w.Drain()
	until(t, r, func() bool { return r.Ready() != nil })
	_, err = r.Blocked()
	require.NoError(t, err, "what was known last")
}
