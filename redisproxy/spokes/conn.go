package spokes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// maxTold bounds what an agent may say at once that is no value: a greeting, a change, a message.
const maxTold = 1 << 20

// errAgent is what an agent answers that does not do what it was asked.
var errAgent = errors.New("the agent refused")

// conn is a connection to an agent's Redis, after the greeting.
type conn struct {
	net.Conn

	reader *bufio.Reader
	space  keys.Space // its keys
	used   time.Time  // when it was given back. Guarded by Spokes.mu
}

// open connects to an agent and greets it.
func (s *Spokes) open(ctx context.Context, agent string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	raw, err := s.options.Dial(ctx, agent)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c := &conn{Conn: raw, reader: bufio.NewReaderSize(raw, 16<<10)}
	err = c.greet()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("greet the agent's Redis: %w", err)
	}
	return c, nil
}

// greet says hello, and learns how the agent's Argo CD calls its keys.
func (c *conn) greet() error {
	if _, err := c.Write(command("HELLO", "3")); err != nil {
		return err
	}
	reply, err := c.next(maxTold, nil)
	if err != nil {
		return err
	}
	fields := resp.Elements(reply)
	if reply[0] != '%' || len(fields)%2 != 0 {
		return fmt.Errorf("%w: %.200q", errAgent, reply)
	}
	for i := 0; i < len(fields); i += 2 {
		if name, _ := resp.Text(fields[i]); string(name) == "key-prefix" {
			prefix, _ := resp.Text(fields[i+1])
			c.space.Prefix = string(prefix)
		}
	}
	return nil
}

// next reads one reply. reserve is asked for what it needs beyond the first bytes; nil allows all up to the limit.
func (c *conn) next(limit int, reserve func(bytes int) bool) (reply []byte, err error) {
	return resp.ReadReply(c.reader, limit, reserve)
}

func command(words ...string) []byte { return resp.AppendCommand(nil, words...) }
