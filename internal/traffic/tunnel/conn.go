package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
)

const (
	// linger is how long the peer may take to close its end once ours is closed.
	linger = 10 * time.Second
	// piece is how much of what is written waits in one buffer. A frame takes what waits, up to two of them.
	piece = maxData / 2
	// pieces is how many wait at most. More than one lets a frame take several small writes.
	pieces = 4
)

// stream is a call of Accept or Dial, with the codec frames. Both ends of a conversation are clients: the principal is
// between them.
type stream = grpc.ClientStream

// Conn is one end of a conversation. It is a net.Conn with a CloseWrite. What is written waits in a few buffers until the
// peer has read enough of what came before, and what is received waits in the inbox until it is read.
type Conn struct {
	stream stream
	cancel context.CancelFunc // ends the stream at once
	local  net.Addr
	remote net.Addr

	reading sync.Mutex  // held by the Read whose turn it is
	rest    *mem.Reader // of a frame, what was not read, nil if nothing. Guarded by reading
	in      *inbox
	acks    *acks

	writing sync.Mutex // held by the Write whose turn it is
	out     chan mem.Buffer
	credit  *credit

	readBy, writeBy deadline

	closed      chan struct{} // closed by Close
	writeClosed chan struct{} // closed by CloseWrite and by Close
	gone        chan struct{} // closed when the peer reads no more, or the stream is lost

	mu        sync.Mutex  // is held by Close and CloseWrite
	lingering *time.Timer // that runs once it is closed. Guarded by mu
}

var _ net.Conn = (*Conn)(nil)

// newConn returns a connection over a stream, which cancel must end.
func newConn(s stream, cancel context.CancelFunc, local, remote net.Addr) *Conn {
	return &Conn{
		stream: s, cancel: cancel, local: local, remote: remote,
		in: newInbox(), acks: newAcks(), out: make(chan mem.Buffer, pieces), credit: newCredit(),
		readBy: newDeadline(), writeBy: newDeadline(),
		closed: make(chan struct{}), writeClosed: make(chan struct{}), gone: make(chan struct{}),
	}
}

// run carries data until both ends are closed, or the stream is lost.
func (c *Conn) run() {
	var sender sync.WaitGroup
	sender.Go(c.send)
	c.receive()
	sender.Wait()
	c.cancel()
	c.readBy.stop()
	c.writeBy.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lingering != nil {
		c.lingering.Stop()
	}
}

// receive takes what the peer says until the stream is over.
func (c *Conn) receive() {
	leave := sync.OnceFunc(func() { close(c.gone) })
	defer leave()
	for {
		var f frame
		if err := c.stream.RecvMsg(&f); err != nil {
			c.in.end(lost(err))
			return
		}
		if err := c.count(&f); err != nil {
			c.in.end(err)
			c.cancel()
			return
		}
		switch f.end {
		case tunnelv1.End_END_WRITE:
			c.in.end(io.EOF)
		case tunnelv1.End_END_CLOSE:
			leave() // before whoever reads learns of it, and then writes
			c.in.end(io.EOF)
		case tunnelv1.End_END_ABORT:
			c.in.end(&resetError{cut(f.reason)})
			leave()
		case tunnelv1.End_END_UNSPECIFIED:
		}
	}
}

// count takes in a frame's data, and what it says of ours. It returns an error when the peer breaks the rules of the flow.
func (c *Conn) count(f *frame) error {
	dropped, ok := c.in.add(f.data)
	if !ok {
		return &resetError{"the other end sent more than it may"}
	}
	c.acks.add(dropped) // so that a peer that writes before it reads gets to read what was written before Close
	if f.read > 0 && !c.credit.acknowledge(f.read) {
		return &resetError{"the other end says it has read more than was sent"}
	}
	return nil
}

// send passes on what is written, and then that nothing more will be, and meanwhile how much was read. It is the stream's
// only sender.
func (c *Conn) send() {
	defer func() { _ = c.stream.CloseSend() }() // which fails only if the stream is over
	for open := true; open; {
		var f frame
		f, open = c.next()
		if !c.say(&f) {
			return // the receiver learns why
		}
	}
	if !isClosed(c.closed) && isClosed(c.writeClosed) && c.stream.SendMsg(&frame{end: tunnelv1.End_END_WRITE}) != nil {
		return
	}
	for {
		select {
		case <-c.acks.due:
			if !c.say(&frame{}) {
				return
			}
		case <-c.closed:
			_ = c.stream.SendMsg(&frame{end: tunnelv1.End_END_CLOSE}) // if it fails there is nobody to tell
			return
		case <-c.stream.Context().Done():
			return
		}
	}
}

// next waits until there may be something to say, and returns the data, if any. More is false once there will be none.
func (c *Conn) next() (f frame, more bool) {
	out, ended := c.out, c.writeClosed
	left := c.credit.available()
	if left == 0 {
		out, ended = nil, nil // what is written waits, and whatever comes after it
	}
	select {
	case first := <-out:
		return frame{data: c.waiting(first, left)}, true
	case <-ended:
		f = frame{data: c.waiting(nil, left)}
		return f, len(f.data) > 0
	case <-c.credit.granted:
		return f, true
	case <-c.acks.due:
		return f, true
	case <-c.gone:
	case <-c.stream.Context().Done():
	}
	return f, false
}

// say sends a frame, if there is something in it, and with it how much was read if the peer waits for that.
func (c *Conn) say(f *frame) bool {
	f.read = c.acks.takeDue()
	size := f.data.Len()
	if size == 0 && f.read == 0 {
		return true
	}
	c.credit.spend(size)
	return c.stream.SendMsg(f) == nil
}

// waiting returns what waits to be sent, after first unless that is nil, as much of it as one frame takes and there is room for.
func (c *Conn) waiting(first mem.Buffer, left int) mem.BufferSlice {
	var all mem.BufferSlice
	if first != nil {
		all = append(all, first)
	}
	for all.Len() <= min(maxData, left)-piece || len(all) == 0 {
		select {
		case next := <-c.out:
			all = append(all, next)
		default:
			return all
		}
	}
	return all
}

// Read reads what the peer wrote. It returns io.EOF once the peer has closed its end or its writing.
func (c *Conn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	switch {
	case isClosed(c.closed):
		return 0, c.failed("read", net.ErrClosed)
	case isClosed(c.readBy.wait()):
		return 0, c.failed("read", os.ErrDeadlineExceeded)
	case len(b) == 0:
		return 0, nil
	}
	for c.rest == nil {
		data, ending := c.in.take()
		switch {
		case errors.Is(ending, io.EOF):
			return 0, io.EOF
		case ending != nil:
			return 0, c.failed("read", ending)
		case data != nil:
			c.rest = data.Reader()
			data.Free() // the reader has its own hold on them
			continue
		}
		select {
		case <-c.in.changed:
		case <-c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case <-c.readBy.wait():
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		}
	}
	n, _ := c.rest.Read(b) // which fails only when nothing is left
	if c.rest.Remaining() == 0 {
		c.rest = nil
	}
	c.acks.add(n)
	return n, nil
}

// Write writes to the peer.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	written := 0
	for {
		switch {
		case isClosed(c.writeClosed):
			return written, c.failed("write", net.ErrClosed)
		case isClosed(c.gone):
			return written, c.failed("write", c.refusal())
		case isClosed(c.writeBy.wait()):
			return written, c.failed("write", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return written, nil
		}
		size := min(len(b), piece)
		data := mem.Copy(b[:size], mem.DefaultBufferPool())
		select {
		case c.out <- data:
			written += size
			if b = b[size:]; len(b) == 0 {
				return written, nil // whatever the peer did on reading it
			}
			continue
		case <-c.writeClosed:
		case <-c.gone:
		case <-c.writeBy.wait():
		}
		data.Free()
	}
}

// refusal returns why the peer reads no more.
func (c *Conn) refusal() error {
	ending := c.in.ended()
	if ending == nil || errors.Is(ending, io.EOF) {
		return syscall.EPIPE // it closed its end
	}
	return ending
}

// Close closes both directions. What was written still arrives, if the peer reads it within some seconds.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isClosed(c.closed) {
		return c.failed("close", net.ErrClosed)
	}
	close(c.closed)
	c.acks.add(c.in.close())
	if !isClosed(c.writeClosed) {
		close(c.writeClosed)
	}
	if c.stream.Context().Err() == nil { // a peer that does not close its end shall not keep the stream
		c.lingering = time.AfterFunc(linger, c.cancel)
	}
	return nil
}

// CloseWrite closes the direction towards the peer, which reads to the end what was written.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isClosed(c.writeClosed) {
		return c.failed("close", net.ErrClosed)
	}
	close(c.writeClosed)
	return nil
}

// Context returns a context that ends with the conversation: when both ends are closed, or it is lost.
func (c *Conn) Context() context.Context { return c.stream.Context() }

// LocalAddr returns this end's address, which tells people which end it is.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the other end's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets the deadlines of Read and Write.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the time after which a Read fails, one that is waiting too. The zero time is never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return c.failed("set", net.ErrClosed)
	}
	c.readBy.set(t)
	return nil
}

// SetWriteDeadline sets the time after which a Write fails, one that is waiting too. The zero time is never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return c.failed("set", net.ErrClosed)
	}
	c.writeBy.set(t)
	return nil
}

// failed returns an error in the form of package net's, which io and net/http know to tell apart.
func (c *Conn) failed(operation string, err error) error {
	return &net.OpError{Op: operation, Net: network, Source: c.local, Addr: c.remote, Err: err}
}

// resetError means that the conversation was lost. It counts as a connection that was reset.
type resetError struct{ reason string }

func (e *resetError) Error() string {
	if e.reason == "" {
		return "the conversation was lost"
	}
	return "the conversation was lost: " + e.reason
}

func (e *resetError) Unwrap() error { return syscall.ECONNRESET }

// lost returns the error of a stream that is over without the peer's saying so.
func lost(err error) error {
	if errors.Is(err, io.EOF) {
		return &resetError{"it ended without notice"}
	}
	return &resetError{cut(status.Convert(err).Message())}
}

// cut returns the beginning of a peer's words, which get into answers and logs.
func cut(reason string) string {
	const most = 1 << 10
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + "…"
}

// network is what this package's networks are called.
const network = "tunnel"

// address is one end of a conversation.
type address string

func (address) Network() string  { return network }
func (a address) String() string { return string(a) }

// spokeAddress is the address of a target of an agent.
func spokeAddress(agent string, target Target) net.Addr {
	return address(fmt.Sprintf("%s/%s", agent, target))
}
