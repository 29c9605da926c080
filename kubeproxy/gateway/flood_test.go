package gateway_test

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Connections that begin a handshake and say no more, or have no certificate of a caller, keep no caller out and end no caller's.
func TestStrangersConnectionsKeepNoCallerOut(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.echo(t, "a")
	known := h.client(t, "a", true)
	get := func(client *http.Client) int {
		response, _ := do(t, client, h.request(t, http.MethodGet, "/api", http.NoBody))
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, get(known))
	for range 200 {
		conn, err := net.Dial("tcp", h.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	require.Equal(t, http.StatusOK, get(h.client(t, "a", false)), "one that comes now")
	require.Equal(t, http.StatusOK, get(known), "one that was there")
	require.Equal(t, 1, strings.Count(h.log.String(), "limit of TLS handshakes in progress reached"))
}

// One caller's connections are bounded, and another's are not refused for it.
func TestConnectionsOfOneCallerAreBounded(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.echo(t, "a", "b")
	own, other := h.certificate(t, "a"), h.certificate(t, "b")
	ask := func(certificate *tls.Certificate) int {
		conn := h.dialWith(t, certificate)
		_, err := conn.Write([]byte("GET /api HTTP/1.1\r\nHost: x\r\n\r\n"))
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	for range maxOfOne {
		require.Equal(t, http.StatusOK, ask(own))
	}
	require.Equal(t, http.StatusTooManyRequests, ask(own))
	require.Equal(t, http.StatusOK, ask(other))
	require.Equal(t, 1, strings.Count(h.log.String(), "limit of connections with one certificate reached"))
}
