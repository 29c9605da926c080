package roundtrip

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"time"
)

// conn is a connection, which has one round trip at a time.
type conn struct {
	net.Conn

	host   string
	in     *io.LimitedReader // so much may be read at most
	reader *bufio.Reader     // of in
	out    *bufio.Writer

	used  bool // it had a round trip before
	heard bool // something of the present answer has come

	since  time.Time   // when it came into the pool. The pool's
	expiry *time.Timer // of its time there; nil before the first. The pool's
}

func newConn(dialled net.Conn, host string) *conn {
	in := &io.LimitedReader{R: dialled}
	return &conn{Conn: dialled, host: host, in: in, reader: bufio.NewReader(in), out: bufio.NewWriter(dialled)}
}

var errSwitched = errors.New("the server changes to another protocol, which it was not asked for")

// exchange writes a request, and reads the head of its answer. The connection is of no use after an error.
func (c *conn) exchange(r *http.Request, maxHeader int64) (*http.Response, error) {
	c.heard = false
	if err := r.Write(c.out); err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	if err := c.out.Flush(); err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	c.in.N = maxHeader
	for {
		answer, err := c.head(r)
		switch {
		case err != nil && c.in.N <= 0:
			return nil, fmt.Errorf("read the answer: its head is longer than %d bytes", maxHeader)
		case err != nil:
			return nil, fmt.Errorf("read the answer: %w", err)
		case answer.StatusCode < http.StatusContinue, answer.StatusCode >= http.StatusOK:
			c.in.N = math.MaxInt64
			return answer, nil
		case answer.StatusCode == http.StatusSwitchingProtocols:
			return nil, errSwitched
		}
		// Something is said ahead of the answer: the trace of the request is how net/http tells of that too.
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(answer.StatusCode, textproto.MIMEHeader(answer.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// head reads the head of an answer.
func (c *conn) head(r *http.Request) (*http.Response, error) {
	if _, err := c.reader.Peek(1); err != nil {
		return nil, err
	}
	c.heard = true
	return http.ReadResponse(c.reader, r)
}
