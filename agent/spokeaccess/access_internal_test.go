package spokeaccess

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// A terminal in which nobody reads what is typed ends with the agent's connection to the principal.
func TestTerminalEndsWithItsTunnelConnection(t *testing.T) {
	w := relaytest.Open(t)
	kubelet, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer kubelet.Close()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: kubelet.Addr().String()})
	ended := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		proxy.ServeHTTP(w, r)
	})
	server := &http.Server{Handler: handler, ConnContext: endWithTunnel, ReadHeaderTimeout: headerTimeout}
	listener := tunnel.NewListener(tunnel.Kube)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Close()
	disconnect := w.Agent(t, "terminals", listener)

	hub, err := w.Dialer.Dial(t.Context(), "terminals", tunnel.Kube)
	require.NoError(t, err)
	defer hub.Close()
	_, err = io.WriteString(hub, "GET /exec HTTP/1.1\r\nHost: spoke\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	terminal, err := kubelet.Accept()
	require.NoError(t, err)
	defer terminal.Close()
	_, err = http.ReadRequest(bufio.NewReader(terminal))
	require.NoError(t, err)
	_, err = io.WriteString(terminal, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(hub), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.NoError(t, hub.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
	_, err = hub.Write(make([]byte, 64<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is typed faster than read")

	disconnect()
	select {
	case <-ended:
	case <-time.After(relaytest.Timeout):
		require.NoError(t, terminal.Close())
		require.FailNow(t, "it goes on")
	}
}
