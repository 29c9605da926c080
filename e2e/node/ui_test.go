package node_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
)

// ui is argocd-server of a hub, as the pages in a person's browser ask it, who has logged in.
type ui struct {
	address string // where people reach it
	token   string
	sites   []*installation.Site // which are explained when something is wrong
}

// logIn logs in as the admin that Argo CD makes, at an address, or if it is empty, at argocd-server's port of the node.
func logIn(t *testing.T, address string, sites ...*installation.Site) ui {
	t.Helper()
	port, password, err := sites[0].Login(within(t))
	require.NoError(t, err)
	if address == "" {
		address = port
	}
	u := ui{address: address, sites: sites}
	var session struct{ Token string }
	answer := u.ask(t, http.MethodPost, "/api/v1/session", map[string]string{"username": "admin", "password": password})
	require.NoError(t, json.Unmarshal(answer, &session))
	u.token = session.Token
	return u
}

// do asks, with JSON unless the body is nil. An answer that goes on has five minutes.
func (u ui) do(t *testing.T, method, path string, body any) (*http.Response, error) {
	t.Helper()
	var text io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		require.NoError(t, err)
		text = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(within(t), method, "http://"+u.address+path, text)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.AddCookie(&http.Cookie{Name: "argocd.token", Value: u.token})
	return http.DefaultClient.Do(request)
}

// ask returns the answer, which has to be a good one.
func (u ui) ask(t *testing.T, method, path string, body any) []byte {
	t.Helper()
	response, err := u.do(t, method, path, body)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, "%s\n%s", answer, explain(t, u.sites...))
	return answer
}

// text returns the answer, good or bad.
func (u ui) text(t *testing.T, path string) string {
	t.Helper()
	response, err := u.do(t, http.MethodGet, path, nil)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return string(answer)
}

// stream is an answer that goes on, line by line.
type stream struct {
	ui
	lines *bufio.Scanner
}

// follow asks for a stream.
func (u ui) follow(t *testing.T, path string) stream {
	t.Helper()
	response, err := u.do(t, http.MethodGet, path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	return stream{u, bufio.NewScanner(response.Body)}
}

// until reads until a line has a text.
func (s stream) until(t *testing.T, text string) {
	t.Helper()
	for s.lines.Scan() {
		if strings.Contains(s.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream ended without %q: %v, after %s\n%s", text, s.lines.Err(), s.lines.Text(), explain(t, s.sites...))
}

// terminal is the UI's: argocd-server's WebSocket.
type terminal struct {
	ui
	conn *websocket.Conn
}

type message struct {
	Operation string `json:"operation"`
	Data      string `json:"data"`
}

func (u ui) open(t *testing.T, of url.Values) terminal {
	t.Helper()
	conn, response, err := websocket.DefaultDialer.DialContext(within(t), "ws://"+u.address+"/terminal?"+of.Encode(),
		http.Header{"Cookie": {"argocd.token=" + u.token}})
	require.NoError(t, err, explain(t, u.sites...))
	require.NoError(t, response.Body.Close())
	t.Cleanup(func() { _ = conn.Close() })
	return terminal{u, conn}
}

func (c terminal) says(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, c.conn.WriteJSON(message{"stdin", text}))
}

// shows reads until a text is on the screen.
func (c terminal) shows(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(timeout)))
	for shown := ""; !strings.Contains(shown, text); {
		var m message
		require.NoError(t, c.conn.ReadJSON(&m), "want %q, have %q\n%s", text, shown, explain(t, c.sites...))
		shown += m.Data
	}
}
