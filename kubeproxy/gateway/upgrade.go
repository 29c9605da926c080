package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// hijackWriter is the ResponseWriter of an upgrade. It makes up for two things in httputil.ReverseProxy. That loses what the
// server has already read from the caller beyond the request. And it waits for a caller that does not read, even after the
// request's context has ended.
type hijackWriter struct {
	http.ResponseWriter
	ctx  context.Context //nolint:containedctx // it is the request's, and lives as long
	stop func() bool     // nil before Hijack
}

// Unwrap is for http.ResponseController.
func (h *hijackWriter) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack implements http.Hijacker.
func (h *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return conn, buffered, err
	}
	h.stop = context.AfterFunc(h.ctx, func() { _ = conn.Close() }) // nobody is there to receive the error
	if buffered.Reader.Buffered() == 0 {
		return conn, buffered, nil
	}
	early := io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered()))
	return &prefixedConn{Conn: conn, reader: io.MultiReader(early, conn)}, buffered, nil
}

// release is called when the request has ended.
func (h *hijackWriter) release() {
	if h.stop != nil {
		h.stop()
	}
}

// prefixedConn is a connection from which the beginning was already read.
type prefixedConn struct {
	net.Conn
	reader io.Reader // the beginning, then the connection
}

func (c *prefixedConn) Read(buffer []byte) (int, error) { return c.reader.Read(buffer) }

// CloseWrite closes our side only.
func (c *prefixedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
