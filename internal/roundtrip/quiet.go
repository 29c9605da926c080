package roundtrip

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// Quieter is a connection that knows whether it is open and has nothing to be read. Quiet does not wait.
type Quieter interface{ Quiet() bool }

// quiet reports whether a connection is open on which nobody asks anything, and nothing has been said either. It does not wait.
// What was said unasked would be taken for the answer to whoever asks next, and from then on everybody would get the answer to
// somebody else.
func (c *conn) quiet() bool {
	if c.reader.Buffered() > 0 {
		return false
	}
	below := c.Conn
	if quieter, ok := below.(Quieter); ok {
		return quieter.Quiet()
	}
	if secured, ok := below.(*tls.Conn); ok {
		if !drained(secured) {
			return false
		}
		below = secured.NetConn()
	}
	if socket, ok := below.(syscall.Conn); ok {
		return silent(socket)
	}
	return true
}

// drained reports whether a connection has nothing that it took in and nobody has read: that is there also after a deadline,
// unlike what is yet to be taken in.
func drained(conn net.Conn) bool {
	if conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded) && conn.SetReadDeadline(time.Time{}) == nil
}
