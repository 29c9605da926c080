package peers_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

// stream is what a principal says to one that watches it.
type stream = grpc.ServerStreamingServer[peerv1.RosterUpdate]

// says is a principal that says what a test wants.
type says struct {
	peerv1.UnimplementedPeerServer
	watch func(stream) error
	calls atomic.Int32
}

// Watch implements peerv1.PeerServer.
func (s *says) Watch(_ *peerv1.WatchRequest, to stream) error {
	s.calls.Add(1)
	if err := s.watch(to); err != nil {
		return err
	}
	<-to.Context().Done()
	return to.Context().Err()
}

// honest serves the roster of a principal.
func (p *principal) honest() peerv1.PeerServer {
	return peers.NewService(p.Roster, func(ctx context.Context, _ ...string) (context.Context, func(), error) { return ctx, func() {}, nil }, nil)
}

// follower follows the principals at some addresses.
type follower struct {
	*principal
	*peers.Peers
	registry *prometheus.Registry
	log      *logtest.Log
}

// withFollower runs a test of a principal that follows others, with a clock of its own.
func withFollower(t *testing.T, at map[string]peerv1.PeerServer, test func(t *testing.T, f *follower)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		f := &follower{principal: newPrincipal("one"), registry: prometheus.NewRegistry(), log: &logtest.Log{}}
		var running sync.WaitGroup
		defer running.Wait()
		var addresses []string
		listeners := make(map[string]*bufconn.Listener)
		for address, service := range at {
			server, listener := grpc.NewServer(grpc.WaitForHandlers(true)), bufconn.Listen(1<<20)
			peerv1.RegisterPeerServer(server, service)
			running.Go(func() { _ = server.Serve(listener) }) // it ends with Stop
			defer server.Stop()
			addresses, listeners[address] = append(addresses, address), listener
		}
		f.Peers = peers.New(peers.Options{
			Roster:    f.Roster,
			Addresses: func(_ context.Context, report func([]string)) { report(addresses) },
			Dial: func(address string) (*grpc.ClientConn, error) {
				return grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listeners[address].DialContext(ctx) }))
			},
			Prefix: "test", Registerer: f.registry, Logger: slog.New(slog.NewTextHandler(f.log, nil)),
		})
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		running.Go(func() { f.Run(ctx) })
		test(t, f)
	})
}

// failures returns how many connections are counted that failed for a reason.
func (f *follower) failures(t *testing.T, reason string) (n int) {
	t.Helper()
	families, err := f.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "test_peer_failures_total" && m.GetLabel()[0].GetValue() == reason {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	require.Fail(t, "that is not counted")
	return 0
}

// two is how a principal begins that says who it is.
func two(held ...*peerv1.Held) *peerv1.RosterUpdate {
	return &peerv1.RosterUpdate{Principal: &peerv1.Principal{Id: "two", Name: "two-0"}, Held: held}
}

func session(agent string, epoch uint64) *peerv1.Held {
	return &peerv1.Held{Agent: agent, Kind: peers.Session, Epoch: epoch}
}

// What one of the principals says is wrong, and it says so again and again: that is logged once, it is asked ever more seldom, what it said
// is forgotten, and nothing else changes.
func TestPeerThatSaysNonsenseConcernsNobodyElse(t *testing.T) {
	send := func(updates ...func() *peerv1.RosterUpdate) func(stream) error {
		return func(to stream) error {
			for _, update := range updates {
				if err := to.Send(update()); err != nil {
					return err
				}
			}
			return nil
		}
	}
	plain := func(u *peerv1.RosterUpdate) func() *peerv1.RosterUpdate {
		return func() *peerv1.RosterUpdate { return u }
	}
	for name, c := range map[string]struct {
		watch  func(stream) error
		reason string
		text   string
	}{
		"nobody":              {send(plain(&peerv1.RosterUpdate{})), "invalid", "it does not say who it is"},
		"a name of a page":    {send(plain(&peerv1.RosterUpdate{Principal: &peerv1.Principal{Id: strings.Repeat("x", 65)}})), "invalid", "it does not say who it is"},
		"a name of a cluster": {send(plain(&peerv1.RosterUpdate{Principal: &peerv1.Principal{Id: "one-first"}})), "invalid", "it does not say who it is"},
		"no agent":            {send(plain(two(session("../paris", 1)))), "invalid", "agent that cannot be"},
		"later no agent": {send(plain(two(session("rome", 1))), func() *peerv1.RosterUpdate {
			<-time.After(time.Second)
			return &peerv1.RosterUpdate{Held: []*peerv1.Held{session("../paris", 1)}}
		}), "invalid", "agent that cannot be"},
		"a clock that is far ahead": {
			send(func() *peerv1.RosterUpdate {
				return two(session("berlin", uint64(time.Now().Add(61*time.Minute).UnixMilli())))
			}), "invalid", "compare the clocks",
		},
		"an epoch that is no time": {
			send(func() *peerv1.RosterUpdate { return two(session("berlin", uint64(time.Now().UnixMilli())+1<<58)) }), "invalid", "compare the clocks",
		},
		"the last epoch": {send(plain(two(session("berlin", math.MaxUint64)))), "invalid", "compare the clocks"},
		"nothing":        {send(), "failed", "it has not said within 15s"},
		"no end": {func(to stream) error {
			for to.Context().Err() == nil {
				if err := to.Send(&peerv1.RosterUpdate{Principal: &peerv1.Principal{Id: "two"}, More: true}); err != nil {
					return err
				}
				select {
				case <-to.Context().Done():
				case <-time.After(time.Second):
				}
			}
			return nil
		}, "failed", "it has not said within 15s"},
	} {
		t.Run(name, func(t *testing.T) {
			liar, three := &says{watch: c.watch}, newPrincipal("three")
			withFollower(t, map[string]peerv1.PeerServer{"liar": liar, "three": three.honest()}, func(t *testing.T, f *follower) {
				three.hold("oslo")
				mine := f.hold("berlin")
				defer mine.Release()
				<-f.Settled() // nobody waits for it for ever
				<-time.After(time.Minute)
				synctest.Wait()
				require.Equal(t, "one", f.holder("berlin"))
				require.Zero(t, f.ended.Load())
				require.Equal(t, "three", f.holder("oslo"))
				three.hold("madrid")
				synctest.Wait()
				require.Equal(t, "three", f.holder("madrid"))
				if f.holder("rome") != "" { // what is connected now says nonsense within a second
					<-time.After(time.Second + time.Millisecond)
					synctest.Wait()
				}
				require.Empty(t, f.holder("rome"))
				require.Equal(t, 1, strings.Count(f.log.String(), c.text), f.log.String())
				require.Positive(t, f.failures(t, c.reason))
				require.LessOrEqual(t, liar.calls.Load(), int32(30))
			})
		})
	}
}

// A principal of the next release says more than this one knows, and one of the release before less: both are understood.
func TestPeersOfOtherReleasesAreUnderstood(t *testing.T) {
	unknown := func(u *peerv1.RosterUpdate) *peerv1.RosterUpdate {
		field := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "news")
		u.ProtoReflect().SetUnknown(field)
		for _, h := range append(u.GetHeld(), u.GetReleased()...) {
			h.ProtoReflect().SetUnknown(field)
		}
		return u
	}
	newer := &says{watch: func(to stream) error {
		first := two(session("rome", 7), session("paris", 7), &peerv1.Held{Agent: "of another kind / of thing", Kind: 99, Epoch: math.MaxUint64})
		first.Principal.Protocol = 2
		if err := to.Send(unknown(first)); err != nil {
			return err
		}
		return to.Send(unknown(&peerv1.RosterUpdate{Released: []*peerv1.Held{session("paris", 0), {Agent: "rome", Kind: 99}, {Kind: 99}}}))
	}}
	older := &says{watch: func(to stream) error {
		return to.Send(&peerv1.RosterUpdate{Principal: &peerv1.Principal{Id: "three"}, Held: []*peerv1.Held{session("oslo", 1)}})
	}}
	withFollower(t, map[string]peerv1.PeerServer{"newer": newer, "older": older}, func(t *testing.T, f *follower) {
		<-f.Settled()
		<-time.After(time.Minute)
		synctest.Wait()
		require.Equal(t, "two", f.holder("rome"))
		require.Empty(t, f.holder("paris"))
		require.Equal(t, "three", f.holder("oslo"))
		require.Len(t, f.All(), 2)
		require.Zero(t, f.failures(t, "invalid")+f.failures(t, "failed"))
	})
}

// Whoever answers for DNS may name any number of addresses. Not all are dialled.
func TestAddressesOfPeersAreBounded(t *testing.T) {
	nobody := make(map[string]peerv1.PeerServer)
	for i := range 150 {
		nobody[fmt.Sprintf("principal-%03d", i)] = &says{watch: func(stream) error { return status.Error(codes.Unavailable, "nobody is here") }}
	}
	withFollower(t, nobody, func(t *testing.T, f *follower) {
		<-time.After(time.Second)
		synctest.Wait()
		dialled := 0
		for _, at := range nobody {
			if at.(*says).calls.Load() > 0 {
				dialled++
			}
		}
		require.Equal(t, 100, dialled)
		require.Equal(t, 1, strings.Count(f.log.String(), "More addresses than a hub has principals"))
	})
}

// Clocks that differ by less than an hour cost nothing: the newest session is the one that began last, by whichever clock.
func TestClocksOfPeersMayDiffer(t *testing.T) {
	ahead := &says{watch: func(to stream) error {
		return to.Send(two(session("berlin", uint64(time.Now().Add(59*time.Minute).UnixMilli()))))
	}}
	withFollower(t, map[string]peerv1.PeerServer{"ahead": ahead}, func(t *testing.T, f *follower) {
		<-f.Settled()
		require.Equal(t, "two", f.holder("berlin"))
		lease := f.hold("berlin") // the agent comes here, where the clock is behind
		require.Equal(t, "one", f.holder("berlin"))
		require.Zero(t, f.ended.Load())
		lease.Release()
		require.Equal(t, "two", f.holder("berlin"))
	})
}
