package tunnel_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both ends behave as package net says, through a real principal over real TLS.
func TestConnIsANetConn(t *testing.T) {
	w := relaytest.Open(t)
	for name, order := range map[string]func(hub, spoke net.Conn) (net.Conn, net.Conn){
		"hub":   func(hub, spoke net.Conn) (net.Conn, net.Conn) { return hub, spoke },
		"spoke": func(hub, spoke net.Conn) (net.Conn, net.Conn) { return spoke, hub },
	} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				hub, spoke := w.Connect(t)
				one, other := order(hub, spoke)
				return one, other, func() { hub.Close(); spoke.Close() }, nil
			})
		})
	}
}

// An end that closes its direction can still read, and what it wrote arrives.
func TestHalfClose(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	question := bytes.Repeat([]byte("question"), 100_000)
	var work sync.WaitGroup
	work.Go(func() {
		_, err := hub.Write(question)
		relaytest.Check(t, err)
		relaytest.Check(t, hub.(interface{ CloseWrite() error }).CloseWrite())
	})
	got, err := io.ReadAll(spoke)
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(question), sha256.Sum256(got))
	work.Wait()
	_, err = hub.Write([]byte("more"))
	require.ErrorIs(t, err, net.ErrClosed)

	_, err = spoke.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, spoke.Close())
	answer, err := io.ReadAll(hub)
	require.NoError(t, err)
	require.Equal(t, "answer", string(answer))
}

func TestWriteToClosedPeerIsABrokenPipe(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	require.NoError(t, spoke.Close())
	_, err := hub.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = hub.Write(make([]byte, 100))
	require.ErrorIs(t, err, syscall.EPIPE)
}

// A reader that does not read stops its own writer, and nobody else.
func TestSlowReaderDoesNotStopOtherConnections(t *testing.T) {
	w := relaytest.Open(t)
	slow, _ := w.Connect(t)
	n := flood(t, slow)
	require.LessOrEqual(t, n, tunnel.MaxUnread, "what nobody reads must be bounded")
	require.GreaterOrEqual(t, n, tunnel.Window)

	hub, spoke := w.Connect(t)
	var echo sync.WaitGroup
	echo.Go(func() {
		_, err := io.Copy(spoke, spoke)
		relaytest.Check(t, err)
		spoke.Close()
	})
	sent := bytes.Repeat([]byte("x"), 1<<20)
	echo.Go(func() {
		_, err := hub.Write(sent)
		relaytest.Check(t, err)
		relaytest.Check(t, hub.(interface{ CloseWrite() error }).CloseWrite())
	})
	got, err := io.ReadAll(hub)
	require.NoError(t, err)
	require.Len(t, got, len(sent))
	echo.Wait()
}

// An agent that dies in the middle of an answer must not look as if it had finished it.
func TestLostConnectionIsNoEOF(t *testing.T) {
	w := relaytest.Open(t)
	hub, spoke := w.Connect(t)
	_, err := spoke.Write([]byte("half of"))
	require.NoError(t, err)
	_, err = io.ReadFull(hub, make([]byte, 7))
	require.NoError(t, err)
	w.Disconnect()
	_, err = hub.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NotErrorIs(t, err, io.EOF)
}

func TestDialFails(t *testing.T) {
	w := relaytest.Open(t)
	_, err := w.Dialer.Dial(t.Context(), "nobody", tunnel.Kube)
	require.ErrorIs(t, err, tunnel.ErrUnknownAgent)

	w.Directory.SetCluster("b", "https://b")
	_, err = w.Dialer.Dial(t.Context(), "b", tunnel.Kube)
	require.ErrorIs(t, err, tunnel.ErrNotConnected)
	require.ErrorContains(t, err, "has not connected since this principal started")

	w.Directory.SetCluster("a", "https://a")
	w.Disconnect()
	_, err = w.Dialer.Dial(t.Context(), "a", tunnel.Kube)
	require.ErrorIs(t, err, tunnel.ErrNotConnected)
	require.ErrorContains(t, err, "it disconnected")

	_, err = w.Dialer.Dial(t.Context(), "a", "teapot")
	require.ErrorContains(t, err, "no target")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Dialer.Dial(ctx, "a", tunnel.Kube)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTargetThatAgentDoesNotServe(t *testing.T) {
	w := relaytest.Open(t)
	c, err := w.Dialer.Dial(t.Context(), "a", tunnel.Redis)
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.ErrorContains(t, err, "the agent serves no redis")
	require.NoError(t, c.Close())
}

// An agent may listen and accept nothing.
func TestDialTimesOut(t *testing.T) {
	w := relaytest.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	busy := w.Listen(t, "busy")
	_, err := w.Dialer.Dial(ctx, "busy", tunnel.Kube)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	busy()
}

// The leak check in TestMain covers these connections too.
func TestManyConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	w := relaytest.Open(t)
	const rounds, at = 625, 16
	var work sync.WaitGroup
	for range at {
		work.Go(func() {
			for range rounds {
				relaytest.Check(t, echoOnce(t.Context(), w))
			}
		})
	}
	work.Wait()
	w.WaitClosed(t)
}

// echoOnce opens a connection to the echo, and uses it once.
func echoOnce(ctx context.Context, w *relaytest.World) error {
	c, err := w.Dialer.Dial(ctx, relaytest.Echo, tunnel.Kube)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("word")); err != nil {
		return err
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != "word" {
		return errors.New("heard " + string(got))
	}
	return nil
}
