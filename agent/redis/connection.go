package redis

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// connection is an authenticated connection to the spoke's Redis.
type connection struct {
	net.Conn

	replies io.Reader // Redis' replies, and then the final one

	mu    sync.Mutex
	final []byte // guarded by mu
}

// setFinalReply adds a reply to those of Redis, after the last one.
func (c *connection) setFinalReply(reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.final = reply
}

// CloseWrite tells Redis that no more commands come.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// open connects to Redis and authenticates.
func (s *Server) open(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	username, password, err := s.options.Access.Credentials()
	if err != nil {
		return nil, fmt.Errorf("credentials of Redis: %w", err)
	}
	raw, err := s.options.Access.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	hello := []string{"HELLO", "3"}
	if username != "" || password != "" {
		hello = append(hello, "AUTH", cmp.Or(username, "default"), password)
	}
	source := bufio.NewReader(raw)
	if err := handshake(raw, source, hello); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	c := &connection{Conn: raw}
	c.replies = io.MultiReader(source, readerFunc(c.readFinal))
	return c, nil
}

// handshake sends a HELLO, and skips the reply.
func handshake(to io.Writer, from *bufio.Reader, hello []string) error {
	if _, err := to.Write(resp.AppendCommand(nil, hello...)); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	reply, err := resp.ReadReply(from, maxCommand, nil)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if reply[0] == '-' {
		return fmt.Errorf("handshake: %s", bytes.TrimSpace(reply[1:]))
	}
	return nil
}

// readFinal reads the final reply.
func (c *connection) readFinal(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.final) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.final)
	c.final = c.final[n:]
	return n, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
