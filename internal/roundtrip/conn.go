package roundtrip

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// conn is a connection, which has one round trip at a time.
type conn struct {
	net.Conn

	host   string
	in     *bounded
	reader *bufio.Reader // of in
	out    *bufio.Writer

	used  bool        // it had a round trip before
	heard bool        // something of the present answer has come
	timer *time.Timer // ends its time in the pool; nil before it was in it
}

func newConn(dialled net.Conn, host string) *conn {
	in := &bounded{reader: dialled, left: unbounded}
	return &conn{Conn: dialled, host: host, in: in, reader: bufio.NewReader(in), out: bufio.NewWriter(dialled)}
}

// more reports whether the server has said more than its answer, which nobody may take for the next one.
func (c *conn) more() bool { return c.reader.Buffered() > 0 }

// unbounded is as much as anybody ever reads.
const unbounded = math.MaxInt64

// errHead is of an answer whose head is longer than it may be.
var errHead = errors.New("it is longer than allowed")

// bounded reads so many bytes more at most, and then fails.
type bounded struct {
	reader io.Reader
	left   int64
}

func (b *bounded) Read(buffer []byte) (int, error) {
	if b.left <= 0 {
		return 0, errHead
	}
	if int64(len(buffer)) > b.left {
		buffer = buffer[:b.left]
	}
	n, err := b.reader.Read(buffer)
	b.left -= int64(n)
	return n, err
}

// body is that of an answer.
type body struct {
	io.ReadCloser // only its Read is of use: its Close would read to the end

	ctx     context.Context //nolint:containedctx // it is the request's, and lives as long
	release func(whole bool)
	once    sync.Once
}

// end gives up the connection. Whole says that the answer was read to its end, and another may follow.
func (b *body) end(whole bool) { b.once.Do(func() { b.release(whole) }) }

// Read implements io.Reader.
func (b *body) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		b.end(true)
		return n, io.EOF
	}
	if b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	b.end(false)
	return n, fmt.Errorf("the answer broke off: %w", err)
}

// Close implements io.Closer. What was not read is given up, and the connection with it.
func (b *body) Close() error {
	b.end(false)
	return nil
}
