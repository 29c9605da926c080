package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"

	"google.golang.org/grpc"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// Conn is a connection to the principal. When there is a newer certificate, streams that begin use a new connection which shows it, and
// those that are open stay on theirs: no terminal and no log ends for that. It is safe for concurrent use.
type Conn struct {
	open     func() (*grpc.ClientConn, error)
	material *certs.Source

	mu     sync.Mutex
	newest *generation              // nil before the first stream. Guarded by mu
	all    map[*generation]struct{} // that have streams, and the newest. Guarded by mu
	closed bool                     // guarded by mu
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// generation is the connection that one certificate is shown on.
type generation struct {
	conn        *grpc.ClientConn
	certificate *tls.Certificate
	streams     int // guarded by Conn.mu
}

var errClosed = errors.New("the connection to the principal is closed")

// NewStream implements [grpc.ClientConnInterface].
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	g, err := c.acquire()
	if err != nil {
		return nil, err
	}
	release := sync.OnceFunc(func() { c.release(g) })
	stream, err := g.conn.NewStream(ctx, desc, method, append(options, grpc.OnFinish(func(error) { release() }))...)
	if err != nil {
		release()
	}
	return stream, err
}

// Invoke implements [grpc.ClientConnInterface].
func (c *Conn) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	g, err := c.acquire()
	if err != nil {
		return err
	}
	defer c.release(g)
	return g.conn.Invoke(ctx, method, request, reply, options...)
}

// acquire returns the connection for a new stream.
func (c *Conn) acquire() (*generation, error) {
	material, _ := c.material.Current() // if there is none, the handshake says why
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.newest == nil || c.newest.certificate != material.Certificate {
		conn, err := c.open()
		if err != nil {
			return nil, err
		}
		older := c.newest
		c.newest = &generation{conn: conn, certificate: material.Certificate}
		c.all[c.newest] = struct{}{}
		c.closeUnused(older)
	}
	c.newest.streams++
	return c.newest, nil
}

func (c *Conn) release(g *generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.streams--
	c.closeUnused(g)
}

// closeUnused closes a connection that shows an older certificate and has no streams. mu is held.
func (c *Conn) closeUnused(g *generation) {
	if g == nil || g == c.newest || g.streams > 0 {
		return
	}
	delete(c.all, g)
	_ = g.conn.Close() // it only ever says that it was closed before
}

// Close ends all streams.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var failures []error
	for g := range c.all {
		failures = append(failures, g.conn.Close())
	}
	clear(c.all)
	c.newest = nil
	return errors.Join(failures...)
}
