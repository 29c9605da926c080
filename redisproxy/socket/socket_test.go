//go:build linux

package socket_test

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/socket"
)

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (near *socket.Socket, conn, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	conn, err = net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	far, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	near = socket.New(conn)
	require.NotNil(t, near)
	return near, conn, far
}

func TestReadWaits(t *testing.T) {
	never := func() bool { return false }
	always := func() bool { return true }
	for name, read := range map[string]func(*socket.Socket, []byte) (int, error){
		"Read":               (*socket.Socket).Read,
		"ReadSoon":           func(s *socket.Socket, p []byte) (int, error) { return s.ReadSoon(p, time.Millisecond, always) },
		"ReadSoon, unwanted": func(s *socket.Socket, p []byte) (int, error) { return s.ReadSoon(p, time.Hour, never) },
	} {
		t.Run(name, func(t *testing.T) {
			near, conn, far := pair(t)
			buffer := make([]byte, 3)
			for _, said := range []string{"one", "two"} {
				var speaking sync.WaitGroup
				speaking.Go(func() { _, _ = far.Write([]byte(said)) })
				n, err := io.ReadFull(reader(func(p []byte) (int, error) { return read(near, p) }), buffer)
				require.NoError(t, err)
				require.Equal(t, said, string(buffer[:n]))
				speaking.Wait()
			}

			require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			_, err := read(near, buffer)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)

			require.NoError(t, conn.SetReadDeadline(time.Time{}))
			require.NoError(t, far.Close())
			_, err = read(near, buffer)
			require.Equal(t, io.EOF, err)

			require.NoError(t, conn.Close())
			_, err = read(near, buffer)
			require.ErrorIs(t, err, net.ErrClosed)
		})
	}
}

func TestCloseEndsRead(t *testing.T) {
	near, conn, _ := pair(t)
	var reading sync.WaitGroup
	var err error
	reading.Go(func() { _, err = near.Read(make([]byte, 1)) })
	require.NoError(t, conn.Close())
	reading.Wait()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestTryWriteDoesNotWait(t *testing.T) {
	near, conn, far := pair(t)
	written := 0
	var err error
	for err == nil {
		var n int
		n, err = near.TryWrite(make([]byte, 1<<20))
		written += n
	}
	require.ErrorIs(t, err, socket.ErrWouldBlock)
	require.NoError(t, conn.Close())
	got, err := io.Copy(io.Discard, far)
	require.NoError(t, err)
	require.EqualValues(t, written, got)
	_, err = near.TryWrite([]byte("late"))
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestAResetIsAnError(t *testing.T) {
	near, _, far := pair(t)
	require.NoError(t, far.(*net.TCPConn).SetLinger(0))
	require.NoError(t, far.Close())
	_, err := near.Read(make([]byte, 1))
	require.Error(t, err)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	n, err := near.TryWrite([]byte("late"))
	require.ErrorIs(t, err, syscall.EPIPE)
	require.Zero(t, n)
}

func TestWhatHasNoSocket(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	require.Nil(t, socket.New(near))
}

type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
