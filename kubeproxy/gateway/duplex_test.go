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
