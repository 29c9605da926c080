package gateway_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

func TestUnreadRequestBodyDoesNotSpoilTheNextRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent func(h *hub)
		code  int
	}{
		"there is no such agent": {func(*hub) {}, http.StatusNotFound},
		"the agent is away":      {func(h *hub) { h.away["a"] = errors.New("no principal") }, http.StatusBadGateway},
		"the agent refuses": {func(h *hub) {
			h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
				if _, err := http.ReadRequest(reader); err == nil {
					_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					_, _ = io.Copy(io.Discard, reader) // or the answer would be lost with the connection
				}
			})
		}, http.StatusForbidden},
	} {
		for kind, size := range map[string]int{"small": 10, "large": 200 << 10} {
			t.Run(name+" "+kind, func(t *testing.T) {
				h := open(t)
				c.agent(h)
				client := h.client(t, "a", false)
				for range 20 {
					response, _ := do(t, client, h.request(t, "POST", "/api/v1/pods", strings.NewReader(strings.Repeat("x", size))))
					require.Equal(t, c.code, response.StatusCode)
				}
				h.stop()
				require.NotContains(t, h.log.String(), "panic")
			})
		}
	}
}

// A caller may be slow to send, or wait for an answer before it sends the rest.
func TestErrorDoesNotWaitForTheRequestBody(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"of known length": "Content-Length: 10\r\n\r\nhello", "chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"that waits": "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n",
	} {
		for reason, c := range map[string]struct {
			certificate string
			code        int
		}{
			"no agent": {"Shared_by_all", http.StatusForbidden}, "unknown": {"nobody", http.StatusNotFound},
			"disconnected": {"away", http.StatusServiceUnavailable},
		} {
			t.Run(reason+" "+name, func(t *testing.T) {
				t.Parallel()
				h := open(t)
				h.away["away"] = tunnel.ErrNotConnected
				conn := h.dialTLS(t, c.certificate)
				_, err := io.WriteString(conn, "POST /api/v1/pods HTTP/1.1\r\nHost: x\r\n"+head)
				require.NoError(t, err)
				reader := bufio.NewReader(conn)
				response, err := http.ReadResponse(reader, nil)
				require.NoError(t, err)
				answer, body := read(t, response)
				require.Equal(t, c.code, answer.StatusCode, body)
				require.True(t, answer.Close)
				_, err = io.Copy(io.Discard, reader)
				require.NoError(t, err, "the caller need not close it")
			})
		}
	}
}
