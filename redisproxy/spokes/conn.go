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

// maxFrame bounds a reply of an agent's that is no value: to the handshake, a changed key, a message.
const maxFrame = 1 << 20

// errAgent is an error that an agent replied.
var errAgent = errors.New("the agent refused")

// conn is a connection to an agent's Redis, after the handshake.
type conn struct {
	net.Conn

	reader *bufio.Reader
	space  keys.Space // its keys
	used   time.Time  // when putIdle was called. Guarded by Spokes.mu

	departures int // of Spokes, before it was opened
}

// dial connects to an agent's Redis.
func (s *Spokes) dial(ctx context.Context, agent string) (*conn, error) {
	s.mu.Lock()
	departures := s.departures
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	raw, err := s.options.Dial(ctx, agent)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c := &conn{Conn: raw, reader: bufio.NewReaderSize(raw, 16<<10), departures: departures}
	err = c.handshake()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("handshake with the agent's Redis: %w", err)
	}
	return c, nil
}

// handshake chooses RESP3, and learns the prefix of the keys of the agent's Argo CD.
func (c *conn) handshake() error {
	if _, err := c.Write(command("HELLO", "3")); err != nil {
		return err
	}
	reply, err := c.readReply(maxFrame, nil)
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

// readReply reads one reply. reserve is asked for each part before it is kept; nil allows all up to the limit.
func (c *conn) readReply(limit int, reserve func(bytes int) bool) (reply []byte, err error) {
	return resp.ReadReply(c.reader, limit, reserve)
}

func command(words ...string) []byte { return resp.AppendCommand(nil, words...) }
