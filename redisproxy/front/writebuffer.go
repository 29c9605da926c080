package front

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// writeBuffer is what a client has not been sent yet.
type writeBuffer struct {
	conn         net.Conn
	limit        int
	drainTimeout time.Duration
	draining     atomic.Bool // the client sends no more, and has drainTimeout to read each piece

	mu      sync.Mutex
	changed sync.Cond
	bytes   []byte // Guarded by mu
	spare   []byte // the buffer that was written last. Guarded by mu
	partial bool   // the last reply goes on. Guarded by mu
	held    []byte // messages that came meanwhile. Guarded by mu
	closed  bool   // nothing more will be added. Guarded by mu
	failed  bool   // the client takes nothing more. Guarded by mu
}

func newWriteBuffer(conn net.Conn, o Options) *writeBuffer {
	w := &writeBuffer{conn: conn, limit: o.Limits.Backlog, drainTimeout: o.DrainTimeout}
	w.changed.L = &w.mu
	return w
}

// appendReply adds something that the client asked for, and waits until there is room. If it is partial, the next reply goes
// on with it, and messages wait until then.
func (w *writeBuffer) appendReply(p []byte, partial bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.bytes) > 0 && len(w.bytes)+len(p) > w.limit && !w.failed && !w.closed {
		w.changed.Wait()
	}
	if w.failed || w.closed {
		return net.ErrClosed
	}
	w.bytes = append(w.bytes, p...)
	if w.partial = partial; !partial && len(w.held) > 0 {
		w.bytes, w.held = append(w.bytes, w.held...), nil
	}
	w.changed.Broadcast()
	return nil
}

// appendMessage adds something that the client did not ask for, and reports whether there was room. It does not wait.
func (w *writeBuffer) appendMessage(p []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.bytes)+len(w.held)+len(p) > w.limit {
		return false
	}
	if w.partial {
		w.held = append(w.held, p...)
		return true
	}
	w.bytes = append(w.bytes, p...)
	w.changed.Broadcast()
	return true
}

// run writes to the client until it is gone, or all is written and close was called.
func (w *writeBuffer) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.bytes) == 0 && !w.closed {
			w.changed.Wait()
		}
		if len(w.bytes) == 0 {
			return
		}
		bytes := w.bytes
		w.bytes = w.spare[:0]
		w.mu.Unlock()
		err := w.write(bytes)
		w.mu.Lock()
		if w.spare = nil; cap(bytes) <= usualBuffer {
			w.spare = bytes
		}
		w.changed.Broadcast()
		if err != nil {
			w.failed = true
			return
		}
	}
}

// write writes in pieces: a client that is drained, and reads slowly, has time for each.
func (w *writeBuffer) write(p []byte) error {
	for len(p) > 0 {
		if w.draining.Load() {
			w.setDeadline()
		}
		n, err := w.conn.Write(p[:min(len(p), usualBuffer)])
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// drain says that the client sends no more. Nobody waits for it any more if it does not read either.
func (w *writeBuffer) drain() {
	w.draining.Store(true)
	w.setDeadline() // for what is being written
}

func (w *writeBuffer) setDeadline() {
	_ = w.conn.SetWriteDeadline(time.Now().Add(w.drainTimeout)) // fails only if it is closed
}

// close says that nothing more comes. The client has a moment to read what there is.
func (w *writeBuffer) close() {
	w.drain()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.changed.Broadcast()
}
