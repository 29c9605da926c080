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
	// drainTimeout is how long the peer may take to close its end once this one is closed.
	drainTimeout = 10 * time.Second
	// chunkSize is how much a buffer of written data holds, in bytes. A frame takes up to two of them.
	chunkSize = maxData / 2
	// maxChunks is how many wait at most. More than one lets a frame take several small writes.
	maxChunks = 4
)

// stream is a call of Accept or Dial, with the codec frames. Both ends of a connection are gRPC clients: the principal is
// between them.
type stream = grpc.ClientStream

// Conn is one end of a tunnel connection. It is a net.Conn with a CloseWrite. What is written waits in a few buffers until
// there is credit, and what is received waits in the inbox until it is read.
type Conn struct {
	stream stream
	cancel context.CancelFunc // ends the stream at once
	local  net.Addr
	remote net.Addr

	reading sync.Mutex  // held by the Read whose turn it is
	partial *mem.Reader // what is left of a frame that was read in part, or nil. Guarded by reading
	inbox   *inbox
	acks    *acks

	writing sync.Mutex // held by the Write whose turn it is
	out     chan mem.Buffer
	credit  *credit

	readBy, writeBy deadline

	closed      chan struct{} // closed by Close
	writeClosed chan struct{} // closed by CloseWrite and by Close
	peerGone    chan struct{} // closed when the peer reads no more, or the stream is lost

	retired <-chan struct{} // see Retired

	mu         sync.Mutex  // held by Close and CloseWrite
	drainTimer *time.Timer // runs once it is closed. Guarded by mu
}

var _ net.Conn = (*Conn)(nil)

// newConn returns a connection over a stream, which cancel must end.
func newConn(s stream, cancel context.CancelFunc, local, remote net.Addr) *Conn {
	return &Conn{
		stream: s, cancel: cancel, local: local, remote: remote,
		inbox: newInbox(), acks: newAcks(), out: make(chan mem.Buffer, maxChunks), credit: newCredit(),
		readBy: newDeadline(), writeBy: newDeadline(),
		closed: make(chan struct{}), writeClosed: make(chan struct{}), peerGone: make(chan struct{}),
	}
}

// Retired returns a channel that is closed when the spoke listens over this way no more: it is reached by another one, to which whoever serves
// the connection has the hub go when that costs nothing. It is never closed on the hub.
func (c *Conn) Retired() <-chan struct{} { return c.retired }

// run carries data until both ends are closed, or the stream is lost.
func (c *Conn) run() {
	var sender sync.WaitGroup
	sender.Go(c.sendFrames)
	c.receiveFrames()
	sender.Wait()
	c.cancel()
	c.readBy.stop()
	c.writeBy.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drainTimer != nil {
		c.drainTimer.Stop()
	}
}

// receiveFrames receives until the stream is over.
func (c *Conn) receiveFrames() {
	peerGone := sync.OnceFunc(func() { close(c.peerGone) })
	defer peerGone()
	for {
		var f frame
		if err := c.stream.RecvMsg(&f); err != nil {
			c.inbox.end(streamError(err))
			return
		}
		if err := c.acceptFrame(&f); err != nil {
			c.inbox.end(err)
			c.cancel()
			return
		}
		switch f.end {
		case tunnelv1.End_END_WRITE:
			c.inbox.end(io.EOF)
		case tunnelv1.End_END_CLOSE:
			peerGone() // before a reader gets EOF, and then writes
			c.inbox.end(io.EOF)
		case tunnelv1.End_END_ABORT:
			c.inbox.end(&resetError{truncate(f.reason)})
			peerGone()
		case tunnelv1.End_END_UNSPECIFIED:
		}
	}
}

// acceptFrame takes in a frame's data and acknowledgement. It returns an error when the peer exceeds its window or
// acknowledges too much.
func (c *Conn) acceptFrame(f *frame) error {
	dropped, ok := c.inbox.add(f.data)
	if !ok {
		return &resetError{"the other end exceeded its window"}
	}
	c.acks.add(dropped) // so that a peer that writes before it reads still gets what was written before Close
	if f.read > 0 && !c.credit.acknowledge(f.read) {
		return &resetError{"the other end acknowledged more than was sent"}
	}
	return nil
}

// sendFrames sends what is written, and acknowledgements, and then the end. It is the stream's only sender.
func (c *Conn) sendFrames() {
	defer func() { _ = c.stream.CloseSend() }() // which fails only if the stream is over
	for open := true; open; {
		var f frame
		f, open = c.nextFrame()
		if !c.sendFrame(&f) {
			return // the receiver gets the reason
		}
	}
	if !isClosed(c.closed) && isClosed(c.writeClosed) && c.stream.SendMsg(&frame{end: tunnelv1.End_END_WRITE}) != nil {
		return
	}
	for {
		select {
		case <-c.acks.due:
			if !c.sendFrame(&frame{}) {
				return
			}
		case <-c.closed:
			_ = c.stream.SendMsg(&frame{end: tunnelv1.End_END_CLOSE}) // if it fails the peer is gone
			return
		case <-c.stream.Context().Done():
			return
		}
	}
}

// nextFrame waits until there may be something to send, and returns the data, if any. More is false once there will be none.
func (c *Conn) nextFrame() (f frame, more bool) {
	out, ended := c.out, c.writeClosed
	left := c.credit.available()
	if left == 0 {
		out, ended = nil, nil // data wait, and so does the end that comes after them
	}
	select {
	case first := <-out:
		return frame{data: c.gather(first, left)}, true
	case <-ended:
		f = frame{data: c.gather(nil, left)}
		return f, len(f.data) > 0
	case <-c.credit.granted:
		return f, true
	case <-c.acks.due:
		return f, true
	case <-c.peerGone:
	case <-c.stream.Context().Done():
	}
	return f, false
}

// sendFrame sends a frame with the acknowledgement that is due, unless there is nothing in it.
func (c *Conn) sendFrame(f *frame) bool {
	f.read = c.acks.takeDue()
	size := f.data.Len()
	if size == 0 && f.read == 0 {
		return true
	}
	c.credit.spend(size)
	return c.stream.SendMsg(f) == nil
}

// gather returns first, unless that is nil, and what waits after it, as far as one frame and the credit allow.
func (c *Conn) gather(first mem.Buffer, left int) mem.BufferSlice {
	var all mem.BufferSlice
	if first != nil {
		all = append(all, first)
	}
	for all.Len() <= min(maxData, left)-chunkSize || len(all) == 0 {
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
		return 0, c.opError("read", net.ErrClosed)
	case isClosed(c.readBy.wait()):
		return 0, c.opError("read", os.ErrDeadlineExceeded)
	case len(b) == 0:
		return 0, nil
	}
	for c.partial == nil {
		data, ending := c.inbox.takeFrame()
		switch {
		case errors.Is(ending, io.EOF):
			return 0, io.EOF
		case ending != nil:
			return 0, c.opError("read", ending)
		case data != nil:
			c.partial = data.Reader()
			data.Free() // the reader has its own reference
			continue
		}
		select {
		case <-c.inbox.changed:
		case <-c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case <-c.readBy.wait():
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		}
	}
	n, _ := c.partial.Read(b) // which fails only when nothing is left
	if c.partial.Remaining() == 0 {
		c.partial = nil
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
			return written, c.opError("write", net.ErrClosed)
		case isClosed(c.peerGone):
			return written, c.opError("write", c.writeError())
		case isClosed(c.writeBy.wait()):
			return written, c.opError("write", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return written, nil
		}
		size := min(len(b), chunkSize)
		data := mem.Copy(b[:size], mem.DefaultBufferPool())
		select {
		case c.out <- data:
			written += size
			if b = b[size:]; len(b) == 0 {
				return written, nil // whatever the peer does next
			}
			continue
		case <-c.writeClosed:
		case <-c.peerGone:
		case <-c.writeBy.wait():
		}
		data.Free()
	}
}

// writeError returns why the peer reads no more.
func (c *Conn) writeError() error {
	ending := c.inbox.ended()
	if ending == nil || errors.Is(ending, io.EOF) {
		return syscall.EPIPE // it closed its end
	}
	return ending
}

// Close closes both directions. What was written still arrives, if the peer reads it within drainTimeout.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isClosed(c.closed) {
		return c.opError("close", net.ErrClosed)
	}
	close(c.closed)
	c.acks.add(c.inbox.close())
	if !isClosed(c.writeClosed) {
		close(c.writeClosed)
	}
	if c.stream.Context().Err() == nil { // a peer that does not close its end must not keep the stream
		c.drainTimer = time.AfterFunc(drainTimeout, c.cancel)
	}
	return nil
}

// CloseWrite closes the direction to the peer, which still gets what was written.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isClosed(c.writeClosed) {
		return c.opError("close", net.ErrClosed)
	}
	close(c.writeClosed)
	return nil
}

// Context returns a context that ends when both ends are closed or the connection is lost.
func (c *Conn) Context() context.Context { return c.stream.Context() }

// LocalAddr returns the name of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the name of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets the deadlines of Read and Write.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the time after which Reads fail, also one that waits already. The zero time is never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return c.opError("set", net.ErrClosed)
	}
	c.readBy.set(t)
	return nil
}

// SetWriteDeadline sets the time after which Writes fail, also one that waits already. The zero time is never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return c.opError("set", net.ErrClosed)
	}
	c.writeBy.set(t)
	return nil
}

// opError returns an error in the form of package net, which io and net/http understand.
func (c *Conn) opError(operation string, err error) error {
	return &net.OpError{Op: operation, Net: network, Source: c.local, Addr: c.remote, Err: err}
}

// resetError means that the connection was lost. It wraps ECONNRESET.
type resetError struct{ reason string }

func (e *resetError) Error() string {
	if e.reason == "" {
		return "the tunnel connection was lost"
	}
	return "the tunnel connection was lost: " + e.reason
}

func (e *resetError) Unwrap() error { return syscall.ECONNRESET }

// streamError returns the error of a stream that ended before the peer closed the connection.
func streamError(err error) error {
	if errors.Is(err, io.EOF) {
		return &resetError{"its stream ended before it was closed"}
	}
	return &resetError{truncate(status.Convert(err).Message())}
}

// truncate returns the beginning of a peer's text, which gets into answers and logs.
func truncate(reason string) string {
	const most = 1 << 10
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + "…"
}

// network is the name of this package's networks.
const network = "tunnel"

// address names one end of a connection.
type address string

func (address) Network() string  { return network }
func (a address) String() string { return string(a) }

// spokeAddress is the address of a target of an agent.
func spokeAddress(agent string, target Target) net.Addr {
	return address(fmt.Sprintf("%s/%s", agent, target))
}
