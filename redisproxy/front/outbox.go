package front

import (
	"net"
	"sync"
	"time"
)

// outbox is what a client is to be told, by whoever has something to tell.
type outbox struct {
	conn  net.Conn
	limit int

	mu     sync.Mutex
	moved  sync.Cond // something was added or taken
	bytes  []byte    // Guarded by mu
	held   bool      // what is unasked. Guarded by mu
	early  []byte    // what came unasked meanwhile. Guarded by mu
	ending bool      // nothing more will be added. Guarded by mu
	failed bool      // the client takes nothing more. Guarded by mu
}

func newOutbox(conn net.Conn, limit int) *outbox {
	q := &outbox{conn: conn, limit: limit}
	q.moved.L = &q.mu
	return q
}

// put adds something that the client asked for, and waits until there is room.
func (q *outbox) put(p []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.bytes) > 0 && len(q.bytes)+len(p) > q.limit && !q.failed && !q.ending {
		q.moved.Wait()
	}
	if q.failed || q.ending {
		return net.ErrClosed
	}
	q.bytes = append(q.bytes, p...)
	q.moved.Broadcast()
	return nil
}

// push adds something unasked, and reports whether there was room. It does not wait.
func (q *outbox) push(p []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.bytes)+len(q.early)+len(p) > q.limit {
		return false
	}
	if q.held {
		q.early = append(q.early, p...)
		return true
	}
	q.bytes = append(q.bytes, p...)
	q.moved.Broadcast()
	return true
}

// hold keeps back what is pushed from now on, until release.
func (q *outbox) hold() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = true
}

// release adds what was kept back, and reports whether there was room.
func (q *outbox) release() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	early := q.early
	q.held, q.early = false, nil
	if len(early) > 0 && len(q.bytes)+len(early) > q.limit {
		return false
	}
	q.bytes = append(q.bytes, early...)
	q.moved.Broadcast()
	return true
}

// write writes what is added, until end or fail is called or the client is gone.
func (q *outbox) write() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.bytes) == 0 && !q.ending && !q.failed {
			q.moved.Wait()
		}
		if q.failed || len(q.bytes) == 0 {
			return
		}
		bytes := q.bytes
		q.bytes = nil
		q.mu.Unlock()
		_, err := q.conn.Write(bytes)
		q.mu.Lock()
		if err != nil {
			q.failed = true
			_ = q.conn.Close()
		}
		q.moved.Broadcast()
	}
}

// end has write return when it has written what there is, or when that takes too long.
func (q *outbox) end() {
	_ = q.conn.SetWriteDeadline(time.Now().Add(farewell))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = true
	q.moved.Broadcast()
}

// fail has everybody return.
func (q *outbox) fail() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = true
	q.moved.Broadcast()
}

// closing reports whether the client is being let go.
func (q *outbox) closing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ending
}
