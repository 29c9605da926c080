package roundtrip

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// body is that of an answer. It lets its connection go at its end.
type body struct {
	from    io.Reader
	ctx     context.Context //nolint:containedctx // it is the request's, and lives as long
	release func(whole bool)
	once    sync.Once
	closed  atomic.Bool
}

// end lets the connection go. Whole says that the answer was read to its end, and another may follow.
func (b *body) end(whole bool) { b.once.Do(func() { b.release(whole) }) }

// Read implements io.Reader.
func (b *body) Read(buffer []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.from.Read(buffer)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF: // an error that wraps it is not the answer's end
		b.end(true)
		return n, io.EOF
	case b.ctx.Err() != nil:
		b.end(false)
		return n, context.Cause(b.ctx)
	default:
		b.end(false)
		return n, fmt.Errorf("the answer broke off: %w", err)
	}
}

// Close implements io.Closer. What was not read is given up, and the connection with it.
func (b *body) Close() error {
	b.closed.Store(true)
	b.end(false)
	return nil
}
