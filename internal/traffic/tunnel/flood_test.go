package tunnel_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// rawDial opens a connection to agent a, and returns the hub's gRPC stream, for a test that breaks the rules, and the spoke's
// end.
func rawDial(t *testing.T, w *relaytest.World) (hub tunnelv1.Relay_DialClient, spoke net.Conn) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), tunnel.MetadataAgent, "a", tunnel.MetadataTarget, string(tunnel.Kube))
	hub, err := tunnelv1.NewRelayClient(w.Hub).Dial(ctx)
	require.NoError(t, err)
	spoke = w.Accept(t)
	t.Cleanup(func() { _ = spoke.Close() })
	return hub, spoke
}

// A peer that sends on though nobody reads loses its connection. What is kept until then is bounded.
func TestPeerThatExceedsItsWindow(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := rawDial(t, w)
	piece := make([]byte, 64<<10)
	for sent := 0; sent < 2*tunnel.InboxSize && hub.Send(&tunnelv1.Frame{Data: piece}) == nil; sent += len(piece) {
	}
	<-spoke.(*tunnel.Conn).Context().Done()
	require.NoError(t, spoke.SetDeadline(time.Now().Add(relaytest.Timeout)))
	kept, err := io.Copy(io.Discard, spoke)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.EqualValues(t, tunnel.InboxSize, kept)
}

// A peer that acknowledges what was never sent would give unlimited credit.
func TestPeerThatAcknowledgesTooMuch(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := rawDial(t, w)
	require.NoError(t, hub.Send(&tunnelv1.Frame{Read: 1}))
	require.NoError(t, spoke.SetDeadline(time.Now().Add(relaytest.Timeout)))
	_, err := spoke.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// Data that nobody reads do not hold up acknowledgements.
func TestDirectionsAreIndependent(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	unread := bytes.Repeat([]byte("u"), 200<<10)
	_, err := spoke.Write(unread)
	require.NoError(t, err)

	sent := bytes.Repeat([]byte("s"), 10<<20)
	var writing sync.WaitGroup
	writing.Go(func() {
		_, err := hub.Write(sent)
		relaytest.Check(t, err)
	})
	got := make([]byte, len(sent))
	require.NoError(t, spoke.SetReadDeadline(time.Now().Add(relaytest.Timeout)))
	_, err = io.ReadFull(spoke, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got))
	writing.Wait()

	got = make([]byte, len(unread))
	_, err = io.ReadFull(hub, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(unread, got))
}

// An end that has finished writing still acknowledges.
func TestAcknowledgesAfterHalfClose(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	require.NoError(t, hub.(*tunnel.Conn).CloseWrite())
	var writing sync.WaitGroup
	writing.Go(func() {
		_, err := spoke.Write(make([]byte, 10<<20))
		relaytest.Check(t, err)
		relaytest.Check(t, spoke.Close())
	})
	require.NoError(t, hub.SetReadDeadline(time.Now().Add(relaytest.Timeout)))
	n, err := io.Copy(io.Discard, hub)
	require.NoError(t, err)
	require.EqualValues(t, 10<<20, n)
	writing.Wait()
}

// What was written before Close or CloseWrite arrives, also when there was no credit for it at the time.
func TestCloseWithoutCredit(t *testing.T) {
	for name, end := range map[string]func(*tunnel.Conn) error{"Close": (*tunnel.Conn).Close, "CloseWrite": (*tunnel.Conn).CloseWrite} {
		t.Run(name, func(t *testing.T) {
			w := relaytest.Open(t)
			hub, spoke := w.Connect(t)
			n := flood(t, spoke)
			require.NoError(t, end(spoke.(*tunnel.Conn)))
			require.NoError(t, hub.SetReadDeadline(time.Now().Add(relaytest.Timeout)))
			got, err := io.Copy(io.Discard, hub)
			require.NoError(t, err)
			require.EqualValues(t, n, got)
		})
	}
}

// An end that writes before it reads still gets what the other end wrote before it closed.
func TestCloseWithBothDirectionsFull(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	n := flood(t, spoke)
	var writing sync.WaitGroup
	var read int64
	var err error
	writing.Go(func() {
		_, _ = hub.Write(make([]byte, 4<<20)) // which may learn in the middle that nobody reads it
		read, err = io.Copy(io.Discard, hub)
	})
	require.NoError(t, spoke.Close())
	writing.Wait()
	require.NoError(t, err)
	require.EqualValues(t, n, read)
}
