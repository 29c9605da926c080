// Package socket reads and writes what can be read and written at once, with as little around it as there can be.
package socket

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// ErrWouldBlock says that the other side is not ready.
var ErrWouldBlock = errors.New("it would have to wait")

// Socket is a TCP connection. One goroutine may read while another writes.
type Socket struct {
	raw   syscall.RawConn
	read  try
	write try
}

// try is one attempt to read or write. It is kept, because a closure per attempt would be garbage per attempt.
type try struct {
	buffer []byte
	n      int
	err    error
	once   func(fd uintptr) bool // makes the attempt
	until  func(fd uintptr) bool // makes it, and reports whether that was of use
}

// New returns the socket of a connection, or nil when it has none of its own: TLS, or a pipe. It has one on Linux only.
func New(conn net.Conn) *Socket {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || !supported {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{raw: raw}
	s.read.by(readNow)
	s.write.by(writeNow)
	return s
}

func (t *try) by(now func(fd uintptr, p []byte) (int, error)) {
	t.once = func(fd uintptr) bool {
		t.n, t.err = now(fd, t.buffer)
		return true
	}
	t.until = func(fd uintptr) bool {
		t.n, t.err = now(fd, t.buffer)
		return !errors.Is(t.err, ErrWouldBlock)
	}
}

// TryWrite writes what the kernel takes at once, and returns how much that was.
func (s *Socket) TryWrite(p []byte) (int, error) {
	s.write.buffer = p
	err := s.raw.Write(s.write.once)
	s.write.buffer = nil
	if err != nil {
		return 0, err
	}
	return s.write.n, s.write.err
}

// Read implements io.Reader. It waits until there is something to read, or the connection's deadline has passed.
func (s *Socket) Read(p []byte) (int, error) {
	return s.try(p, s.read.until)
}

// ReadSoon reads like Read, but for a moment asks again instead of going to sleep, as long as wanted returns true. To be
// woken takes as long as Redis takes for an answer: a client that is alone would wait twice as long for each.
func (s *Socket) ReadSoon(p []byte, moment time.Duration, wanted func() bool) (int, error) {
	for begin := time.Now(); wanted() && time.Since(begin) <= moment; {
		if n, err := s.try(p, s.read.once); !errors.Is(err, ErrWouldBlock) {
			return n, err
		}
	}
	return s.Read(p)
}

func (s *Socket) try(p []byte, attempt func(fd uintptr) bool) (int, error) {
	s.read.buffer = p
	err := s.raw.Read(attempt)
	s.read.buffer = nil
	switch {
	case err != nil:
		return 0, err
	case s.read.err == nil && s.read.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return s.read.n, s.read.err
}
