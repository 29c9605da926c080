package tunnel_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// requireDelivered sends a word from one end to the other.
func requireDelivered(t *testing.T, from, to net.Conn, word string) {
	t.Helper()
	require.NoError(t, to.SetReadDeadline(time.Now().Add(relaytest.Timeout)))
	_, err := from.Write([]byte(word))
	require.NoError(t, err)
	got := make([]byte, len(word))
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, word, string(got))
}

// When listening ends, open connections stay open until they are closed or the server stops.
func TestConnectionsOutliveListening(t *testing.T) {
	for name, end := range map[string]func(hub, spoke net.Conn, stop func()){
		"until they are over": func(hub, spoke net.Conn, _ func()) { hub.Close(); spoke.Close() },
		"until the end":       func(_, _ net.Conn, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			w := relaytest.Open(t)
			kube := tunnel.NewListener(tunnel.Kube)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			listening, retire := context.WithCancel(ctx)
			defer retire()
			conn := w.ClientConn(t, "retiring")
			defer func() { relaytest.Check(t, conn.Close()) }()
			served, conns := make(chan error, 1), new(sync.WaitGroup)
			go func() {
				err := tunnel.NewServer(slog.New(slog.DiscardHandler), kube).Serve(ctx, listening, conn, conns)
				conns.Wait()
				served <- err
			}()
			w.AwaitConnected(t, "retiring", true)
			hub, err := w.Dialer.Dial(t.Context(), "retiring", tunnel.Kube)
			require.NoError(t, err)
			defer hub.Close()
			spoke, err := kube.Accept()
			require.NoError(t, err)
			defer spoke.Close()

			requireDelivered(t, hub, spoke, "before")
			w.Directory.SetCluster("retiring", "https://retiring")
			retire()
			w.AwaitConnected(t, "retiring", false)
			_, err = w.Dialer.Dial(t.Context(), "retiring", tunnel.Kube)
			require.ErrorIs(t, err, tunnel.ErrNotConnected)
			requireDelivered(t, hub, spoke, "and after")
			requireDelivered(t, spoke, hub, "either way")
			require.Empty(t, served)
			end(hub, spoke, stop)
			select {
			case err := <-served:
				require.Error(t, err)
			case <-time.After(relaytest.Timeout):
				require.FailNow(t, "it does not return")
			}
		})
	}
}
