package upstream

import (
	"errors"
	"net"
	"runtime"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

const (
	readSize = 64 << 10
	// keep is how large a buffer may be that is kept for the next commands.
	keep = 256 << 10
)

// errUnasked ends a connection on which Redis says more than it was asked.
var errUnasked = errors.New("the hub's Redis said something unasked on a connection that clients share")

// Sink takes the replies to what it submitted.
type Sink interface {
	// Deliver takes replies, or parts of them, in order. The last ones come with done. It must not wait, and not keep p.
	Deliver(p []byte, done bool)
	// Fail says that there will be no more replies.
	Fail(err error)
}

// turn is the replies that one Sink waits for.
type turn struct {
	sink Sink
	left int
}

// Shared is a connection that many clients use at once. What they submit while Redis has something to answer is written
// together, as soon as some of that has been answered: few large packets cost Redis and us less than many small ones, and
// Redis does one thing at a time anyway. The replies are handed out in the order of the commands.
type Shared struct {
	conn net.Conn

	mu      sync.Mutex
	out     []byte // commands to be written. Guarded by mu
	spare   []byte // the buffer that was written last. Guarded by mu
	turns   []turn // whose commands those are, and were, up to where read is. Guarded by mu
	writing bool   // somebody writes, and will write what is added. Guarded by mu
	owed    int    // turns that were submitted and not answered. Guarded by mu
	failure error  // why there will be no more replies. Guarded by mu

	// Owned by read.
	replies resp.Replies
	taken   []turn // in the order in which replies come
	next    int    // in taken
}

// Submit sends commands, of which there are count, and reports whether their replies will come to the sink, or its Fail be
// called. When it reports false, nothing was sent. The commands are copied.
func (s *Shared) Submit(commands []byte, count int, sink Sink) bool {
	s.mu.Lock()
	if s.failure != nil {
		s.mu.Unlock()
		return false
	}
	s.out = append(s.out, commands...)
	s.turns = append(s.turns, turn{sink, count})
	s.owed++
	if s.writing || s.owed > 1 {
		s.mu.Unlock()
		return true
	}
	s.writing = true
	s.mu.Unlock()
	runtime.Gosched() // whoever else is about to submit does so now
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
	return true
}

// write writes what was submitted, until there is nothing left. It is called with mu held.
func (s *Shared) write() {
	for len(s.out) > 0 && s.failure == nil {
		out := s.out
		s.out, s.spare = s.spare[:0], nil
		s.mu.Unlock()
		_, err := s.conn.Write(out)
		s.mu.Lock()
		if cap(out) <= keep {
			s.spare = out
		}
		if err != nil {
			_ = s.conn.Close() // read finds out, and tells everybody
			break
		}
	}
	s.writing = false
}

// read hands out replies until the connection ends.
func (s *Shared) read() {
	buffer := make([]byte, readSize)
	for {
		n, err := s.conn.Read(buffer)
		if err == nil {
			err = s.hand(buffer[:n])
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// hand gives each sink its part, and has written what came in meanwhile.
func (s *Shared) hand(b []byte) error {
	answered := 0
	for len(b) > 0 {
		if s.next == len(s.taken) && !s.take() {
			return errUnasked
		}
		t := &s.taken[s.next]
		used := 0
		for used < len(b) && t.left > 0 {
			n, done, err := s.replies.Next(b[used:])
			if err != nil {
				return err
			}
			used += n
			if done {
				t.left--
			}
		}
		t.sink.Deliver(b[:used], t.left == 0)
		b = b[used:]
		if t.left == 0 {
			t.sink = nil
			s.next++
			answered++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed -= answered
	if !s.writing {
		s.writing = true
		s.write()
	}
	return nil
}

// take takes the turns that were added since, and reports whether there are any.
func (s *Shared) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken, s.turns = s.turns, s.taken[:0]
	s.next = 0
	return len(s.taken) > 0
}

func (s *Shared) fail(err error) {
	_ = s.conn.Close()
	s.mu.Lock()
	s.failure = err
	waiting := append(s.taken[s.next:], s.turns...)
	s.taken, s.turns, s.out, s.next = nil, nil, nil, 0
	s.mu.Unlock()
	for _, t := range waiting {
		t.sink.Fail(err)
	}
}

func (s *Shared) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure != nil
}
