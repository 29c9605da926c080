package tunnel_test

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// flood writes until no more is accepted, since nobody reads, and returns how many bytes were.
func flood(t *testing.T, to net.Conn) (taken int) {
	t.Helper()
	for more := 1; more > 0 || taken < tunnel.Window; taken += more {
		require.NoError(t, to.SetWriteDeadline(time.Now().Add(time.Second)))
		var err error
		more, err = to.Write(make([]byte, 64<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.NoError(t, to.SetWriteDeadline(time.Time{}))
	return taken
}

// An agent that lost its principal connects again, also when somebody on the spoke does not read what arrived.
func TestDisconnectDoesNotWaitForReaders(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	flood(t, hub)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Disconnect()
	}()
	select {
	case <-done:
	case <-time.After(relaytest.Timeout):
		spoke.Close()
		<-done
		require.FailNow(t, "disconnecting waits for a reader")
	}
	_, err := spoke.Write([]byte("word"))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// An end that does not read notices when it writes that its connection is lost.
func TestWriteToLostConnectionFails(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	flood(t, spoke)
	w.Kill()
	require.NoError(t, hub.SetWriteDeadline(time.Now().Add(relaytest.Timeout)))
	var err error
	for err == nil {
		_, err = hub.Write([]byte("word"))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	<-hub.(*tunnel.Conn).Context().Done()
}

// A frame that is too large closes its own connection only.
func TestFrameThatIsTooLarge(t *testing.T) {
	w := relaytest.Open(t)
	for name, frame := range map[string]*tunnelv1.Frame{
		"data":   {Data: make([]byte, 1<<20)},
		"reason": {End: tunnelv1.End_END_ABORT, Reason: strings.Repeat("x", 1<<20)},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), tunnel.MetadataAgent, relaytest.Echo, tunnel.MetadataTarget, "kube")
		stream, err := tunnelv1.NewRelayClient(w.Hub).Dial(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(frame))
		for err == nil {
			_, err = stream.Recv()
		}
		require.Equal(t, codes.InvalidArgument, status.Code(err), name)
		require.NotContains(t, err.Error(), "xxx")
	}
	require.NoError(t, echoOnce(t.Context(), w))
}
