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

// most is how much is handed to the kernel in one call, in bytes: nothing else of the program runs on that processor meanwhile.
const most = 64 << 10

// Socket is a TCP connection. One goroutine may read while another writes. Nobody may take the connection's File: that would
// make calls wait.
type Socket struct {
	raw       syscall.RawConn
	read      attempt
	readUntil func(fd uintptr) bool // makes an attempt to read, and reports whether the other side was ready
	write     attempt
}

// attempt is one at reading or writing. Functions for package net are made once: one per call would be garbage per call.
type attempt struct {
	buffer []byte
	n      int
	err    error
	once   func(fd uintptr) bool // makes it, and returns true
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
	s.read.make(readNow)
	s.write.make(writeNow)
	s.readUntil = func(fd uintptr) bool { return s.read.once(fd) && !errors.Is(s.read.err, ErrWouldBlock) }
	return s
}

func (a *attempt) make(call func(fd uintptr, p []byte) (int, error)) {
	a.once = func(fd uintptr) bool {
		a.n, a.err = call(fd, a.buffer)
		return true
	}
}

// TryWrite writes what the kernel takes at once, and returns how much that was.
func (s *Socket) TryWrite(p []byte) (int, error) {
	defer func() { s.write.buffer = nil }()
	written := 0
	for {
		s.write.buffer = p[written:min(len(p), written+most)]
		if err := s.raw.Write(s.write.once); err != nil {
			return written, err
		}
		written += s.write.n
		if s.write.err != nil || written == len(p) {
			return written, s.write.err
		}
	}
}

// Read implements io.Reader. It waits until there is something to read, or the connection's deadline has passed.
func (s *Socket) Read(p []byte) (int, error) { return s.readBy(p, s.readUntil) }

// ReadSoon reads like Read, but for a moment asks again instead of going to sleep, as long as wanted returns true. To be
// woken takes as long as Redis takes for an answer: a client that is alone would wait twice as long for each. The processor
// is not given to others meanwhile.
func (s *Socket) ReadSoon(p []byte, moment time.Duration, wanted func() bool) (int, error) {
	if !wanted() {
		return s.Read(p)
	}
	for begin := time.Now(); ; {
		n, err := s.readBy(p, s.read.once)
		if !errors.Is(err, ErrWouldBlock) {
			return n, err
		}
		if !wanted() || time.Since(begin) > moment {
			return s.Read(p)
		}
	}
}

func (s *Socket) readBy(p []byte, attempt func(fd uintptr) bool) (int, error) {
	s.read.buffer = p[:min(len(p), most)]
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
