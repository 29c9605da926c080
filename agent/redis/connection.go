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

// connection is one to the spoke's Redis, by which the agent has made itself known.
type connection struct {
	net.Conn

	answers io.Reader // what Redis says, and then what last was called with

	mu  sync.Mutex
	end []byte // guarded by mu
}

// last adds to what Redis has said when it ends.
func (c *connection) last(words []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = words
}

// CloseWrite tells Redis that there is nothing more to do.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// open connects to Redis and greets it.
func (s *Server) open(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting)
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
	if err := greet(raw, source, hello); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	c := &connection{Conn: raw}
	c.answers = io.MultiReader(source, readerFunc(c.readEnd))
	return c, nil
}

// greet says hello, and passes over the answer.
func greet(to io.Writer, from *bufio.Reader, hello []string) error {
	if _, err := to.Write(resp.AppendCommand(nil, hello...)); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	answer, err := resp.ReadReply(from, maxCommand, nil)
	if err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	if answer[0] == '-' {
		return fmt.Errorf("greet: %s", bytes.TrimSpace(answer[1:]))
	}
	return nil
}

// readEnd reads what last was called with.
func (c *connection) readEnd(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.end) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.end)
	c.end = c.end[n:]
	return n, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
