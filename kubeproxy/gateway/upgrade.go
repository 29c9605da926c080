package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// hijackable is a ResponseWriter for a request that may become a conversation. What the caller said before the answer came
// may have been read already, and ReverseProxy looks for it on the connection only; and it waits for a caller who does not
// read for as long as that takes, whatever becomes of the context.
type hijackable struct {
	http.ResponseWriter
	ctx  context.Context //nolint:containedctx // it is the request's, and lives as long
	stop func() bool     // nil before Hijack
}

// Unwrap is for http.ResponseController.
func (h *hijackable) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack implements http.Hijacker.
func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return conn, buffered, err
	}
	h.stop = context.AfterFunc(h.ctx, func() { _ = conn.Close() }) // what is open ends; how, nobody is there to hear
	if buffered.Reader.Buffered() == 0 {
		return conn, buffered, nil
	}
	said := io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered()))
	return &resumed{Conn: conn, reader: io.MultiReader(said, conn)}, buffered, nil
}

// done says that the request is over.
func (h *hijackable) done() {
	if h.stop != nil {
		h.stop()
	}
}

// resumed is a connection of which a part has been read before.
type resumed struct {
	net.Conn
	reader io.Reader
}

func (r *resumed) Read(buffer []byte) (int, error) { return r.reader.Read(buffer) }

// CloseWrite ends our side only.
func (r *resumed) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
