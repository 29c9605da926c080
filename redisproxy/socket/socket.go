// Package socket reads and writes what can be read and written at once, and does not wait for the rest.
package socket

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// ErrWouldBlock says that the other side is not ready.
var ErrWouldBlock = errors.New("it would have to wait")

// Socket is a TCP connection. One goroutine may read while another writes.
type Socket struct {
	conn  net.Conn
	raw   syscall.RawConn
	read  try
	write try
}

// try is one attempt to read or write. It is kept, because a closure per attempt would be garbage per attempt.
type try struct {
	buffer []byte
	n      int
	err    error
	do     func(fd uintptr) bool
}

// New returns the socket of a connection, or nil when it has none of its own: TLS, or a pipe.
func New(conn net.Conn) *Socket {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || !supported {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{conn: conn, raw: raw}
	s.read.do = func(fd uintptr) bool {
		s.read.n, s.read.err = readNow(fd, s.read.buffer)
		return true
	}
	s.write.do = func(fd uintptr) bool {
		s.write.n, s.write.err = writeNow(fd, s.write.buffer)
		return true
	}
	return s
}

// TryWrite writes what the kernel takes at once, and returns how much that was.
func (s *Socket) TryWrite(p []byte) (int, error) {
	s.write.buffer = p
	if err := s.raw.Write(s.write.do); err != nil {
		return 0, err
	}
	s.write.buffer = nil
	return max(s.write.n, 0), s.write.err
}

// ReadSoon reads like Read, but for a moment asks again instead of going to sleep, as long as wanted returns true. To be
// woken takes as long as Redis takes for an answer: a client that is alone would wait twice as long for each.
func (s *Socket) ReadSoon(p []byte, moment time.Duration, wanted func() bool) (int, error) {
	s.read.buffer = p
	for begin := time.Now(); ; {
		if err := s.raw.Read(s.read.do); err != nil {
			return 0, err
		}
		if s.read.err == nil && s.read.n > 0 {
			return s.read.n, nil
		}
		if !errors.Is(s.read.err, ErrWouldBlock) || !wanted() || time.Since(begin) > moment {
			break
		}
	}
	s.read.buffer = nil
	return s.conn.Read(p) // which also finds the words for an end or an error
}
