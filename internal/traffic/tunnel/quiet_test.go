package tunnel_test

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// Whoever keeps a connection for later learns whether it is still as it was.
func TestQuiet(t *testing.T) {
	w := relaytest.Open(t)
	for name, happen := range map[string]func(*testing.T, net.Conn){
		"something is said":   func(t *testing.T, spoke net.Conn) { say(t, spoke, "more") },
		"it is closed":        func(t *testing.T, spoke net.Conn) { require.NoError(t, spoke.Close()) },
		"it will say nothing": func(t *testing.T, spoke net.Conn) { require.NoError(t, spoke.(*tunnel.Conn).CloseWrite()) },
	} {
		t.Run(name, func(t *testing.T) {
			hub, spoke := w.Converse(t)
			mine := hub.(*tunnel.Conn)
			require.True(t, mine.Quiet())
			say(t, spoke, "answer")
			_, err := io.ReadFull(hub, make([]byte, 3))
			require.NoError(t, err)
			require.False(t, mine.Quiet(), "a part is not read")
			_, err = io.ReadFull(hub, make([]byte, 3))
			require.NoError(t, err)
			require.True(t, mine.Quiet())

			happen(t, spoke)
			require.Eventually(t, func() bool { return !mine.Quiet() }, relaytest.Patience, relaytest.Patience/1000)
		})
	}
}

func say(t *testing.T, to net.Conn, what string) {
	t.Helper()
	_, err := io.WriteString(to, what)
	require.NoError(t, err)
}
