package link_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
)

const (
	// moment is long enough for loopback to have carried what it would carry.
	moment = 60 * time.Millisecond
	// timeout is how long a test waits for what must come.
	timeout = 2 * time.Minute
)

// ends is one connection through a link, seen from both of its ends.
type ends struct{ near, far net.Conn }

// lay makes a link to a listener of its own.
func lay(t *testing.T) (*link.Link, net.Listener) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	l, err := link.New(t.Context(), "test", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, listener
}

func dial(t *testing.T, l *link.Link) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", l.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func connect(t *testing.T, l *link.Link, listener net.Listener) ends {
	t.Helper()
	near := dial(t, l)
	far, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	return ends{near: near, far: far}
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
}

func receive(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
	data := make([]byte, len(text))
	_, err := io.ReadFull(conn, data)
	require.NoError(t, err)
	require.Equal(t, text, string(data))
}

func receiveNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(moment)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func receiveReset(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// dialInVain makes a connection that is ended at once: how the dialler learns that depends on how fast it is.
func dialInVain(t *testing.T, l *link.Link) {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", l.Address())
	if err != nil {
		require.ErrorIs(t, err, syscall.ECONNRESET)
		return
	}
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestCarriesBothWaysAndHalfCloses(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	send(t, c.near, "hello")
	receive(t, c.far, "hello")
	require.NoError(t, c.near.(*net.TCPConn).CloseWrite())
	_, err := c.far.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	send(t, c.far, "good bye")
	receive(t, c.near, "good bye")
	require.Equal(t, link.Traffic{Sent: 5, Received: 8}, l.Traffic())
}

func TestCarriesALot(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	const size = 16 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := c.near.Write(make([]byte, size))
		sent <- errors.Join(err, c.near.Close())
	}()
	n, err := io.Copy(io.Discard, c.far)
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	require.NoError(t, <-sent)
}

func TestCutIsSilent(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	send(t, c.near, "before")
	receive(t, c.far, "before")

	l.Cut()
	send(t, c.near, "lost?")
	send(t, c.far, "me too?")
	receiveNothing(t, c.far)
	receiveNothing(t, c.near)
	require.Equal(t, 1, l.Connections())

	l.Restore()
	receive(t, c.far, "lost?")
	receive(t, c.near, "me too?")
}

func TestCutHidesThatAnEndIsGone(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	l.Cut()
	require.NoError(t, c.near.Close())
	receiveNothing(t, c.far)
	l.Restore()
	require.NoError(t, c.far.SetReadDeadline(time.Now().Add(timeout)))
	_, err := c.far.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func TestCutHoldsNewConnections(t *testing.T) {
	l, listener := lay(t)
	l.Cut()
	near := dial(t, l)
	send(t, near, "anybody there?")
	require.NoError(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(moment)))
	_, err := listener.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	l.Restore()
	require.NoError(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(timeout)))
	far, err := listener.Accept()
	require.NoError(t, err)
	defer far.Close()
	receive(t, far, "anybody there?")
}

func TestResetEndsOpenConnectionsOnly(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	l.Reset()
	receiveReset(t, c.near)
	receiveReset(t, c.far)

	again := connect(t, l, listener)
	send(t, again.near, "hello")
	receive(t, again.far, "hello")
}

func TestRefuseEndsOpenAndNewConnections(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	l.Refuse()
	receiveReset(t, c.near)
	receiveReset(t, c.far)
	dialInVain(t, l)

	l.Restore()
	again := connect(t, l, listener)
	send(t, again.near, "hello")
	receive(t, again.far, "hello")
}

func TestAResetPassesThrough(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	require.NoError(t, c.far.(*net.TCPConn).SetLinger(0))
	require.NoError(t, c.far.Close())
	receiveReset(t, c.near)
}

func TestDelayKeepsBandwidth(t *testing.T) {
	l, listener := lay(t)
	c := connect(t, l, listener)
	l.Delay(moment)
	var took time.Duration
	for range 20 { // a machine that stands still for a while makes it longer, but not each time
		began := time.Now()
		for range 10 {
			send(t, c.near, "0123456789")
		}
		receive(t, c.far, "0123456789")
		require.GreaterOrEqual(t, time.Since(began), moment)
		for range 9 {
			receive(t, c.far, "0123456789")
		}
		if took = time.Since(began); took < 5*moment {
			return
		}
	}
	require.Less(t, took, 5*moment, "pieces travel at the same time, not one after the other")
}

func TestUnreachableTargetResetsConnection(t *testing.T) {
	l, listener := lay(t)
	require.NoError(t, listener.Close())
	dialInVain(t, l)
}

func TestCloseLeavesNothing(t *testing.T) {
	for _, cut := range []bool{false, true} {
		l, listener := lay(t)
		c := connect(t, l, listener)
		if cut {
			l.Cut()
		}
		send(t, c.near, "hello")
		require.NoError(t, l.Close())
		require.Zero(t, l.Connections())
		require.NoError(t, l.Close(), "closing again is no error")
		var dialer net.Dialer
		_, err := dialer.DialContext(t.Context(), "tcp", l.Address())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}
