package front

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tidwall/redcon"
	"golang.org/x/sync/singleflight"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// What Redis takes from a client that is not authenticated.
const maxStrangerArgs = 10

// knownFor is how long it is believed whether Redis asks for a password.
const knownFor = 10 * time.Second

// noAuth is Redis' reply to a command that needs a password before.
const noAuth = "-NOAUTH"

// door lets those through to the hub's Redis who bring a password, and all while Redis asks for none. A connection to Redis is made
// for nobody else: NetworkPolicies keep strangers away from Redis, and redisproxy is not to take them there.
type door struct {
	asking singleflight.Group // Redis is asked once for all who want to know

	mu      sync.Mutex
	locked  bool      // Redis asks for a password. Guarded by mu
	checked time.Time // guarded by mu
}

// open returns a connection to Redis for a client that brings no password, or nil if Redis asks for one.
func (d *door) open(ctx context.Context, server *Server) (net.Conn, error) {
	locked, err := d.isLocked(ctx, server)
	if err != nil || locked {
		return nil, err
	}
	return server.dialUpstream(ctx)
}

// isLocked reports whether Redis asks for a password. It is asked at most once in knownFor.
func (d *door) isLocked(ctx context.Context, server *Server) (bool, error) {
	for {
		d.mu.Lock()
		locked, known := d.locked, time.Since(d.checked) < knownFor
		d.mu.Unlock()
		if known {
			return locked, nil
		}
		_, err, _ := d.asking.Do("", func() (any, error) { return nil, d.ask(ctx, server) })
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil && !errors.Is(err, context.Canceled) { // the one whose question it was may have gone
			return false, err
		}
	}
}

// ask asks Redis whether it wants a password.
func (d *door) ask(ctx context.Context, server *Server) error {
	hub, err := server.dialUpstream(ctx)
	if err == nil {
		defer func() { _ = hub.Close() }()
		var reply []byte
		if reply, err = ping(ctx, hub, server.options.Upstream.Timeout); err == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.checked, d.locked = time.Now(), bytes.HasPrefix(reply, []byte(noAuth))
			return nil
		}
	}
	return cmp.Or(ctx.Err(), err)
}

// ping returns what Redis replies to a new connection.
func ping(ctx context.Context, hub net.Conn, timeout time.Duration) ([]byte, error) {
	defer context.AfterFunc(ctx, func() { _ = hub.Close() })()
	if err := hub.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if _, err := hub.Write(resp.AppendCommand(nil, "PING")); err != nil {
		return nil, err
	}
	return resp.ReadReply(bufio.NewReader(hub), usualBuffer, nil)
}

// bringsPassword reports whether a command may authenticate a client.
func bringsPassword(args [][]byte) bool {
	switch {
	case bytes.EqualFold(args[0], []byte("auth")):
		return len(args) == 2 || len(args) == 3
	case bytes.EqualFold(args[0], []byte("hello")):
		for i := 2; i+2 < len(args); i++ {
			if bytes.EqualFold(args[i], []byte("auth")) {
				return true
			}
		}
	}
	return false
}

// enter reads what a client sends until it may be connected to the hub's Redis, and returns that connection and the command to go on
// with, which has no words if it is too long to have come yet.
func (r *requests) enter(ctx context.Context) (net.Conn, resp.Command, error) {
	for {
		command, err := r.nextCommand()
		switch {
		case err != nil:
			return nil, resp.Command{}, r.turnAway(err)
		case len(command.Args) == 0:
			if r.end-r.start >= usualBuffer {
				break // nothing more is kept of a stranger
			}
			if err = r.makeRoom(); err == nil {
				err = r.readMore()
			}
			if err != nil {
				return nil, resp.Command{}, err
			}
			continue
		case bringsPassword(command.Args):
			hub, err := r.server.dialUpstream(ctx)
			return hub, command, err
		}
		hub, err := r.server.door.open(ctx, r.server)
		if err != nil || hub != nil {
			return hub, command, err
		}
		r.server.metrics.strangers.Inc()
		switch {
		case len(command.Args) == 0:
			return nil, resp.Command{}, r.turnAway(resp.ProtocolError("unauthenticated bulk length"))
		case len(command.Args) > maxStrangerArgs:
			return nil, resp.Command{}, r.turnAway(resp.ProtocolError("unauthenticated multibulk length"))
		}
		if _, err := r.conn.Write([]byte(noAuth + " Authentication required.\r\n")); err != nil {
			return nil, resp.Command{}, err
		}
	}
}

// turnAway tells a client what is wrong with what it sent, and returns that.
func (r *requests) turnAway(err error) error {
	_, _ = r.conn.Write(redcon.AppendError(nil, "ERR "+err.Error())) // it is disconnected anyway
	return err
}
