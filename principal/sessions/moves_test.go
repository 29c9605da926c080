package sessions_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

// another runs another principal of the hub, and returns what that one holds. The service's own knows of it when it returns, and learns of
// every change. Of two sessions that begin at the same time the other one's is the newer.
func (o *fixture) another(t *testing.T) *peers.Roster {
	t.Helper()
	roster := peers.NewRoster(peers.Self{ID: "two"}, authn.ErrSuperseded)
	admit := func(ctx context.Context, _ ...string) (context.Context, func(), error) { return ctx, func() {}, nil }
	server := grpc.NewServer()
	peerv1.RegisterPeerServer(server, peers.NewService(roster, admit, nil))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	known := peers.New(peers.Options{
		Roster: o.roster, Registerer: prometheus.NewRegistry(), Prefix: "argocd_principal", Logger: slog.New(slog.DiscardHandler),
		Addresses: func(ctx context.Context, report func([]string)) {
			report([]string{listener.Addr().String()})
			<-ctx.Done()
		},
		Dial: func(address string) (*grpc.ClientConn, error) {
			return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { known.Run(ctx) })
	t.Cleanup(func() { stop(); server.Stop(); running.Wait() })
	select {
	case <-known.Settled():
	case <-withTimeout(t).Done():
		require.FailNow(t, "the other principal was not found")
	}
	return roster
}

// What a principal remembers of an agent is forgotten once another one serves it, whether the agent left before or because of that.
func TestAgentThatMovedToAnotherPrincipalIsForgotten(t *testing.T) {
	o := newFixture(t)
	left := make(chan struct{}, 100)
	o.roster.Subscribe(func(kind peers.Kind, agent string) {
		if _, held := o.roster.Held(kind, agent); agent == "b" && !held {
			left <- struct{}{}
		}
	})
	o.listen(t)
	o.run(t)
	other := o.another(t)
	serve := func(name string) agent {
		a := o.connectServed(t, name)
		a.reportEmpty(t)
		o.change(name, "guestbook", "of "+name)
		a.requirePut(t, "guestbook", "of "+name)
		return a
	}
	hold := func(name string) {
		other.Hold(peers.Session, name, peers.About{Mode: "managed"}, func(error) {})
	}
	stays := serve("stays")
	a := serve("a")
	hold("a")
	require.Equal(t, codes.Aborted, status.Code(a.endReason(t)))
	require.Equal(t, "a", <-o.forgotten)

	serve("b").hangUp()
	<-left
	require.Empty(t, o.forgotten, "it has a cluster Secret")
	hold("b")
	require.Equal(t, "b", <-o.forgotten)

	// It is served again when it comes back, and nobody else was concerned.
	serve("b")
	o.change("stays", "guestbook", "two")
	stays.requirePut(t, "guestbook", "two")
	require.Empty(t, o.forgotten)
}
