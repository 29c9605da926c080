package sessions

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// reset is a connection that was reset while something was written to it: the kernel says so to who writes, and only then
// to who reads that there is nothing more.
type reset struct{ net.Conn }

func (reset) Read([]byte) (int, error)  { return 0, io.EOF }
func (reset) Write([]byte) (int, error) { return 0, syscall.ECONNRESET }

func TestResetThatAWriterMetIsALostConnection(t *testing.T) {
	w := &watched{Conn: reset{}}
	require.Empty(t, w.lost())
	_, err := w.Write([]byte("ping"))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = w.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, syscall.ECONNRESET.Error(), w.lost())
}
