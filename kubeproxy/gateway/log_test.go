package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// Somebody opens a terminal with a password on the command line while the agent is away.
func TestLogHasNoWordsOfCommands(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.away["a"] = tunnel.ErrNotConnected
	const exec = "/api/v1/namespaces/x/pods/y/exec?"
	for _, target := range []string{
		exec + "command=mysql&command=-phunter2&container=hunter2&stdin=true",
		exec + "command=mysql&-phunter2", exec + "command=mysql&hunter2", exec + "command=mysql;-phunter2=x", exec + "hunter2", exec + "command=a&hunter-2=x",
		exec + "command=%zzhunter2", "http://root:hunter2@x" + exec + "command=hunter2", "*?hunter2",
	} {
		response, _ := h.say(t, "a", "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.GreaterOrEqual(t, response.StatusCode, http.StatusBadRequest, target)
	}
	require.Contains(t, h.log.String(), `path=/api/v1/namespaces/x/pods/y/exec parameters=command,container,stdin`)
	require.NotContains(t, h.log.String(), "hunter2")
	require.NotContains(t, h.log.String(), "mysql")
}

// What a spoke sends in place of HTTP is quoted in part.
func TestAnswerThatIsNoHTTPIsQuotedInPart(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
		if _, err := http.ReadRequest(reader); err == nil {
			fmt.Fprint(conn, strings.Repeat("x", 512<<10), "\r\n\r\n")
		}
	})
	response, body := do(t, h.client(t, "a", true), h.request(t, http.MethodGet, "/api", http.NoBody))
	requireStatus(t, response, body, http.StatusBadGateway, "BadGateway", "malformed HTTP")
	require.Less(t, len(body), 2048)
	require.Less(t, len(h.log.String()), 4096)
}
