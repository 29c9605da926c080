package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkSize = 32 << 10 // bytes read at a time
	inFlight  = 64       // chunks on their way in one direction; a sender that is faster waits
)

// cable is one connection through a link: two streams, near to far and back.
type cable struct {
	link    *Link
	targets []string
	near    *net.TCPConn // from the one who dialled
	cancel  context.CancelFunc
}

// chunk is a piece of a stream with the time that it arrived at. The last one of a stream has an error: io.EOF when its
// sender has finished, anything else when the connection broke.
type chunk struct {
	data    []byte
	arrived time.Time
	err     error
}

// reset ends the cable; run then resets both of its ends.
func (c *cable) reset() { c.cancel() }

// run carries both streams until both have finished or the cable is reset.
func (c *cable) run(ctx context.Context) {
	defer c.cancel()
	gate, _ := c.link.way()
	select { // a target behind a cut cable does not even learn of a new connection
	case <-gate:
	case <-ctx.Done():
		abort(c.near)
		return
	}
	far := c.dial(ctx)
	if far == nil {
		abort(c.near)
		return
	}
	stop := context.AfterFunc(ctx, func() {
		abort(c.near)
		abort(far)
	})
	var streams sync.WaitGroup
	streams.Go(func() { c.carry(ctx, far, c.near, &c.link.sent) })
	streams.Go(func() { c.carry(ctx, c.near, far, &c.link.received) })
	streams.Wait()
	if stop() { // both streams have finished in peace
		_ = c.near.Close()
		_ = far.Close()
	}
}

// dial connects to the first target that listens; nil if none does.
func (c *cable) dial(ctx context.Context) *net.TCPConn {
	// A dial that is called off closes in peace what it may have opened already, where a reset was asked for.
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, target := range c.targets {
		if conn, err := dialer.DialContext(context.WithoutCancel(ctx), "tcp", target); err == nil {
			return conn.(*net.TCPConn)
		}
	}
	return nil
}

// carry moves one stream. It ends when the stream does, or breaks the whole cable when the connection broke.
func (c *cable) carry(ctx context.Context, to, from *net.TCPConn, count *atomic.Int64) {
	chunks := make(chan chunk, inFlight)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() { read(ctx, from, chunks) })
	for {
		var piece chunk
		select {
		case piece = <-chunks:
		case <-ctx.Done():
			return
		}
		if !c.travel(ctx, piece.arrived) {
			return
		}
		if errors.Is(piece.err, io.EOF) {
			_ = to.CloseWrite() // fails when the other end is gone, which the other stream learns
			return
		}
		if piece.err != nil {
			c.cancel()
			return
		}
		count.Add(int64(len(piece.data))) // before the write: whoever has read it finds it counted
		if n, err := to.Write(piece.data); err != nil {
			count.Add(int64(n - len(piece.data)))
			c.cancel()
			return
		}
	}
}

// travel takes the time that the link's delay asks for, and as long as it is cut. It tells whether the piece arrives.
func (c *cable) travel(ctx context.Context, sent time.Time) bool {
	gate, delay := c.link.way()
	if wait := delay - time.Since(sent); delay > 0 && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
		gate, _ = c.link.way()
	}
	select {
	case <-gate:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// read turns what a connection receives into chunks, until its end.
func read(ctx context.Context, from *net.TCPConn, chunks chan<- chunk) {
	buffer := make([]byte, chunkSize)
	for {
		n, err := from.Read(buffer)
		now := time.Now()
		if n > 0 && !send(ctx, chunks, chunk{data: bytes.Clone(buffer[:n]), arrived: now}) {
			return
		}
		if err != nil {
			send(ctx, chunks, chunk{err: err, arrived: now})
			return
		}
	}
}

func send(ctx context.Context, chunks chan<- chunk, c chunk) bool {
	select {
	case chunks <- c:
		return true
	case <-ctx.Done():
		return false
	}
}
