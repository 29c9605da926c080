package front

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
)

const (
	firstBuffer = 4 << 10  // what commands and replies are read into at first
	usualBuffer = 64 << 10 // and the most that is kept of a larger buffer
)

// client is one client, which has a connection to the hub's Redis of its own.
type client struct {
	server  *Server
	conn    net.Conn
	hub     net.Conn // the connection to the hub's Redis
	out     *writeBuffer
	pending *pending

	// State of the connection to Redis, as its replies say. The goroutine that reads replies sets it.
	resp3    atomic.Bool // the client has chosen RESP3
	queueing atomic.Bool // the client is in a transaction
	accepted atomic.Bool // Redis has authenticated the client: it has done something for it

	closing atomic.Bool // the client sends no more

	// place is the client's among those who have not authenticated. Guarded by the server's mu.
	place *connlimit.Place[*client]
	// stranger ends the client unless it has authenticated by then.
	stranger *time.Timer
}

func newClient(server *Server, conn net.Conn) *client {
	return &client{server: server, conn: conn, out: newWriteBuffer(conn, server.options), pending: newPending()}
}

// run serves the client until it goes, does what it may not, Redis disconnects it, or the context ends.
func (c *client) run(ctx context.Context) {
	defer func() { _ = c.conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.conn.Close() })()
	c.stranger = time.AfterFunc(c.server.options.AuthTimeout, func() {
		if !c.accepted.Load() {
			c.server.reportStranger("it did not authenticate in time", c.conn)
			cancel()
		}
	})
	defer c.stranger.Stop()
	requests := newRequests(c)
	defer requests.release()
	hub, first, err := requests.enter(ctx)
	if err != nil {
		return
	}
	c.hub = hub
	defer context.AfterFunc(ctx, func() { _ = hub.Close() })()

	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		c.out.run()
	})
	running.Go(func() {
		newReplies(c).run(ctx)
		c.pending.close()
		c.out.close()
	})
	if !c.drain(requests.run(first)) {
		cancel()
	}
	_ = hub.Close()
	running.Wait()
	c.server.options.Spokes.UnsubscribeAll(c)
}

// drain waits for the replies to what the client has sent, if it may still want them: it has only said that it sends no more,
// or has sent something malformed, or Redis has disconnected it. It reports whether that is so.
func (c *client) drain(err error) bool {
	protocol := resp.ProtocolError("")
	malformed := errors.As(err, &protocol)
	if !malformed && !errors.Is(err, io.EOF) && !errors.Is(err, errUpstream) {
		return false
	}
	c.closing.Store(true)
	c.out.drain()
	_ = c.hub.SetReadDeadline(time.Now().Add(c.server.options.DrainTimeout)) // fails only if it is closed
	if c.pending.wait() && malformed {
		_ = c.out.appendReply(redcon.AppendError(nil, "ERR "+protocol.Error()), false)
	}
	return true
}

// Message sends a message of an agent's to the client. It implements spokes.Subscriber.
func (c *client) Message(pattern, channel string, payload []byte) {
	begin := byte('*')
	if c.resp3.Load() {
		begin = '>'
	}
	frame := []byte{begin}
	if pattern == "" {
		frame = append(frame, "3\r\n$7\r\nmessage\r\n"...)
	} else {
		frame = redcon.AppendBulkString(append(frame, "4\r\n$8\r\npmessage\r\n"...), pattern)
	}
	frame = redcon.AppendBulk(redcon.AppendBulkString(frame, channel), payload)
	if !c.out.appendMessage(frame) { // nobody waits for a client that does not read
		c.server.metrics.overrun.Inc()
		_ = c.conn.Close()
	}
}
