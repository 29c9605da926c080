package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	spdytransport "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// switching connects an agent that takes every upgrade, says something at once, and serves what follows.
func (h *hub) switching(t *testing.T, serve func(r *http.Request, conn net.Conn, reader *bufio.Reader)) {
	t.Helper()
	h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		// In one piece, so that the first words come with the headers.
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nwelcome\n",
			r.Header.Get("Upgrade"))
		serve(r, conn, reader)
	})
}

const upgradeHead = "POST /api/v1/namespaces/x/pods/y/exec?command=a%2Fb&command=c HTTP/1.1\r\nHost: x\r\n" +
	"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"

// Nothing that either side sends early is lost, and each side may close its half.
func TestUpgradeKeepsEarlyDataAndHalfCloses(t *testing.T) {
	t.Parallel()
	h := open(t)
	heard := make(chan string, 1)
	h.switching(t, func(r *http.Request, conn net.Conn, reader *bufio.Reader) {
		all, err := io.ReadAll(reader) // until the caller has ended its half
		heard <- fmt.Sprint(r.RequestURI, " ", string(all), err)
		_, _ = io.WriteString(conn, "you said "+string(all))
	})
	conn := h.dialTLS(t, "a")
	_, err := io.WriteString(conn, upgradeHead+"early ") // with the request, before any answer
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	require.Equal(t, "SPDY/3.1", response.Header.Get("Upgrade"))
	require.Equal(t, "v4.channel.k8s.io", response.Header.Get("X-Stream-Protocol-Version"))
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "welcome\n", line)
	require.Equal(t, 1.0, h.counted(t, "argocd_kubeproxy_open_requests", "upgrade"))
	_, err = io.WriteString(conn, "late")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	require.Equal(t, "/api/v1/namespaces/x/pods/y/exec?command=a%2Fb&command=c early late<nil>", <-heard)
	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, "you said early late", string(rest))
	eventually(t, func() bool { return h.counted(t, "argocd_kubeproxy_requests_total", "a", "1xx", "UPGRADE") == 1 })
}

func TestUpgradedConnectionEndsOnBothSides(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, h *hub, caller, agent net.Conn){
		"the caller goes":  func(_ *testing.T, _ *hub, caller, _ net.Conn) { caller.Close() },
		"the agent dies":   func(_ *testing.T, _ *hub, _, agent net.Conn) { agent.Close() },
		"the gateway ends": func(_ *testing.T, h *hub, _, _ net.Conn) { h.stop() },
		"trust ends":       func(t *testing.T, h *hub, _, _ net.Conn) { h.trust(newCA(t, "another")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			agents, gone := make(chan net.Conn, 1), make(chan struct{})
			h.switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
				agents <- conn
				_, _ = io.Copy(io.Discard, reader)
				close(gone)
			})
			conn := h.dialTLS(t, "a")
			_, err := io.WriteString(conn, upgradeHead)
			require.NoError(t, err)
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			defer response.Body.Close()
			end(t, h, conn, <-agents)
			<-gone
			_, _ = io.Copy(io.Discard, reader) // it comes to an end
		})
	}
}

func TestUpgradedConnectionEndsWithoutReader(t *testing.T) {
	t.Parallel()
	h := open(t)
	stuck := make(chan struct{})
	h.switching(t, func(_ *http.Request, conn net.Conn, _ *bufio.Reader) {
		chunk := make([]byte, 64<<10)
		for {
			_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) // one that passes early makes the test weaker, not wrong
			if _, err := conn.Write(chunk); err != nil {
				break
			}
		}
		close(stuck)
		_ = conn.SetWriteDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, conn)
	})
	conn := h.dialTLS(t, "a")
	_, err := io.WriteString(conn, upgradeHead)
	require.NoError(t, err)
	<-stuck
	h.trust(newCA(t, "another"))
	eventually(t, func() bool { return h.counted(t, "argocd_kubeproxy_requests_total", "a", "1xx", "UPGRADE") == 1 })
}

func TestRefusedUpgradeIsForwarded(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.Header.Get("Sec-Websocket-Protocol"), http.StatusForbidden)
	})
	response, body := h.say(t, "a", "GET /api/v1/namespaces/x/pods/y/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Protocol: v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io\r\n\r\n")
	require.Equal(t, http.StatusForbidden, response.StatusCode)
	require.Equal(t, "v5.channel.k8s.io, v4.channel.k8s.io\n", body, "the token is not the spoke's to see")
}

// Otherwise the rest of the body would be read while the caller's connection already belongs to the other protocol.
func TestUpgradeWithABodyIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.switching(t, func(*http.Request, net.Conn, *bufio.Reader) {})
	for _, body := range []string{"Content-Length: 5\r\n\r\nearly", "Transfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n"} {
		response, text := h.say(t, "a", "POST /api/v1/namespaces/x/pods/y/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+body)
		requireStatus(t, response, text, http.StatusBadRequest, "BadRequest", "the request has a body")
	}
}

// Kubernetes' own clients reach Kubernetes' own servers.
func TestExecOverSPDYAndWebSocket(t *testing.T) {
	t.Parallel()
	h := open(t)
	pair, err := h.ca.IssueClient(pki.ClientOptions{Caller: "a"})
	require.NoError(t, err)
	h.executes(t, &rest.Config{Host: "https://" + h.address, TLSClientConfig: rest.TLSClientConfig{
		CAData: h.ca.PEM().Certificate, CertData: pair.Certificate, KeyData: pair.Key,
	}})
}

// executes has Kubernetes' own clients reach an agent "a" that is Kubernetes' own servers.
func (h *hub) executes(t *testing.T, config *rest.Config) {
	t.Helper()
	h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			serveWebSocket(w, r)
			return
		}
		serveSPDY(w, r)
	})
	target, err := url.Parse(config.Host + "/api/v1/namespaces/x/pods/y/exec?stdin=true")
	require.NoError(t, err)

	t.Run("SPDY", func(t *testing.T) {
		transport, upgrader, err := spdytransport.RoundTripperFor(config)
		require.NoError(t, err)
		conn, protocol, err := spdytransport.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target).Dial("v4.channel.k8s.io")
		require.NoError(t, err)
		defer conn.Close()
		require.Equal(t, "v4.channel.k8s.io", protocol)
		stream, err := conn.CreateStream(http.Header{"Streamtype": {"stdin"}})
		require.NoError(t, err)
		_, err = io.WriteString(stream, "hello")
		require.NoError(t, err)
		require.NoError(t, stream.Close())
		all, err := io.ReadAll(stream)
		require.NoError(t, err)
		require.Equal(t, "hello", string(all))
	})
	t.Run("WebSocket", func(t *testing.T) {
		transport, holder, err := websocket.RoundTripperFor(config)
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(withTimeout(t), http.MethodGet, target.String(), http.NoBody)
		require.NoError(t, err)
		conn, err := websocket.Negotiate(transport, holder, r, "v4.channel.k8s.io")
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.WriteMessage(2, []byte("\x00hello")))
		_, message, err := conn.ReadMessage()
		for err == nil && len(message) <= 1 { // a channel says first that it is there
			_, message, err = conn.ReadMessage()
		}
		require.NoError(t, err)
		require.Equal(t, "\x01hello", string(message))
	})
}

// serveWebSocket sends what comes on channel 0 back on channel 1.
func serveWebSocket(w http.ResponseWriter, r *http.Request) {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		"v4.channel.k8s.io": {Binary: true, Channels: []wsstream.ChannelType{wsstream.ReadChannel, wsstream.WriteChannel}},
	})
	_, channels, err := conn.Open(w, r)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(channels[1], channels[0])
}

// serveSPDY sends what comes on a stream back on it.
func serveSPDY(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			_, _ = io.Copy(stream, stream)
			_ = stream.Close()
		}()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	select {
	case <-conn.CloseChan():
	case <-ctx.Done():
	}
}
