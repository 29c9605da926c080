package front

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/socket"
)

// farewell is how long a client may take to read what is left when it is disconnected.
const farewell = time.Second

// late is what a client did not take at once. A goroutine of its own writes it, so that nobody else waits for that, and so
// that a client may send commands for long before it reads replies, as it may with Redis.
type late struct {
	mu       sync.Mutex
	moved    sync.Cond // on mu
	bytes    []byte    // Guarded by mu
	draining bool      // Guarded by mu
	spilled  bool      // something from the shared connection was late. Guarded by mu
	done     bool      // it ends with the last reply from the shared connection. Guarded by mu
	gone     bool      // nobody wants it. Guarded by mu
}

// settle waits until all that went over the shared connection is answered.
func (s *session) settle(ctx context.Context) error {
	if !s.waiting {
		return nil
	}
	select {
	case <-s.answered:
		s.waiting = false
	case <-ctx.Done():
		return ctx.Err()
	}
	s.late.mu.Lock()
	defer s.late.mu.Unlock()
	if s.late.spilled {
		s.late.spilled, s.apart = false, apart
	}
	if s.late.gone {
		return net.ErrClosed
	}
	return nil
}

// write writes to the client, and waits only while too much is late.
func (s *session) write(p []byte) error {
	if s.socket == nil {
		_, err := s.conn.Write(p)
		return err
	}
	l := &s.late
	l.mu.Lock()
	defer l.mu.Unlock()
	p = s.try(p)
	for !l.gone && len(l.bytes) > 0 && len(l.bytes)+len(p) > s.server.options.Limits.Backlog {
		l.moved.Wait()
	}
	s.later(p)
	if l.gone {
		return net.ErrClosed
	}
	return nil
}

// Deliver hands replies from the shared connection to the client.
func (s *session) Deliver(p []byte, done bool) {
	l := &s.late
	l.mu.Lock()
	defer l.mu.Unlock()
	p = s.try(p)
	if !l.gone && len(l.bytes)+len(p) > s.server.options.Limits.Backlog {
		s.server.metrics.overrun.Inc()
		s.abandon()
	}
	l.spilled = l.spilled || len(p) > 0
	s.later(p)
	if done && l.draining {
		l.done = true
	} else if done {
		s.answered <- struct{}{}
	}
}

// Fail disconnects the client: what it asked for may have been done, or not.
func (s *session) Fail(error) {
	s.late.mu.Lock()
	defer s.late.mu.Unlock()
	s.abandon()
	s.answered <- struct{}{}
}

// try writes what the client takes at once, unless something is late, and returns the rest. It is called with late.mu held,
// and so are the next two.
func (s *session) try(p []byte) []byte {
	if s.late.draining || s.late.gone {
		return p
	}
	n, err := s.socket.TryWrite(p)
	if err != nil && !errors.Is(err, socket.ErrWouldBlock) {
		s.abandon()
	}
	return p[n:]
}

// later has something written when the client takes it.
func (s *session) later(p []byte) {
	if len(p) == 0 || s.late.gone {
		return
	}
	s.late.bytes = append(s.late.bytes, p...)
	if !s.late.draining {
		s.late.draining = true
		s.server.drains.Go(s.drain)
	}
}

// abandon gives up on the client.
func (s *session) abandon() {
	s.late.gone, s.late.bytes = true, nil
	_ = s.conn.Close()
	s.late.moved.Broadcast()
}

// drain writes what is late.
func (s *session) drain() {
	l := &s.late
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.bytes) > 0 {
		bytes := l.bytes
		l.bytes = nil
		l.mu.Unlock()
		_, err := s.conn.Write(bytes)
		l.mu.Lock()
		if err != nil {
			s.abandon()
		}
		l.moved.Broadcast()
	}
	l.draining = false
	l.moved.Broadcast()
	if l.done {
		l.done = false
		s.answered <- struct{}{}
	}
}

// part lets the client read what is left, for a moment.
func (s *session) part() {
	if s.stream != nil {
		s.stream.drain()
		return
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(farewell))
	s.late.mu.Lock()
	defer s.late.mu.Unlock()
	for s.late.draining {
		s.late.moved.Wait()
	}
}
