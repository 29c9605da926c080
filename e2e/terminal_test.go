package e2e_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// terminal is the UI's terminal: argocd-server's WebSocket.
type terminal struct{ conn *websocket.Conn }

// message is what is said on it.
type message struct {
	Operation string `json:"operation"`
	Data      string `json:"data,omitempty"`
	Rows      uint16 `json:"rows,omitempty"`
	Cols      uint16 `json:"cols,omitempty"`
}

// terminal opens a terminal in one of the Application's Pods.
func (g *guestbook) terminal(t *testing.T) *terminal {
	t.Helper()
	address := strings.Replace(g.hub.cluster.ArgoCD.URL, "http://", "ws://", 1) + "/terminal?" + url.Values{
		"pod": {g.pod}, "container": {"web"}, "appName": {g.declared.Name}, "appNamespace": {g.declared.Namespace},
		"projectName": {text(g.hub.get(t), "spec", "project")}, "namespace": {g.declared.Into},
	}.Encode()
	conn, response, err := websocket.DefaultDialer.DialContext(t.Context(), address, http.Header{"Cookie": {"argocd.token=anybody"}})
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	t.Cleanup(func() { _ = conn.Close() })
	return &terminal{conn}
}

func (c *terminal) says(t *testing.T, m message) {
	t.Helper()
	require.NoError(t, c.conn.WriteJSON(m))
}

// shows reads until the terminal shows a text.
func (c *terminal) shows(t *testing.T, text string) {
	t.Helper()
	shown := ""
	require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(timeout)))
	for !strings.Contains(shown, text) {
		var m message
		require.NoError(t, c.conn.ReadJSON(&m), "want %q, have %q\n%s", text, shown, shared.Report())
		shown += m.Data
	}
}

// A person works in a shell of a spoke's container.
func TestUITerminal(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, agent string) {
		g := newGuestbook(t, agent, "terminal")
		c := g.terminal(t)
		c.says(t, message{Operation: "resize", Rows: 24, Cols: 80})
		c.says(t, message{Operation: "stdin", Data: "echo $((6 * 7)) of them\n"})
		c.shows(t, "42 of them")
		c.says(t, message{Operation: "stdin", Data: "for i in $(seq 2000); do echo line $i; done; echo over\n"})
		c.shows(t, "line 2000\r\nover")
	})
}
