package redis

import (
	"bufio"
	"fmt"
	"io"
	"net"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// maxPush bounds a push: a message of Argo CD's is empty, and a list of changed keys has those of one turn of Redis' event loop.
const maxPush = 16 << 20

// shared reports whether the hub may know of a key or a channel: that of an application which is shared with it, or of a cluster.
func (s *Server) shared(name []byte) bool {
	space := keys.Space{Prefix: s.options.KeyPrefix}
	key := space.Key(name)
	switch key.Kind {
	case keys.Tree, keys.Managed:
		return s.options.Shared(key.Name)
	case keys.Cluster:
		return true
	default:
		return false
	}
}

// missing is a command that reads a key which nobody writes: what is not shared is answered as what does not exist, by Redis, which
// puts the answer in its place among the others.
func (s *Server) missing() []byte {
	space := keys.Space{Prefix: s.options.KeyPrefix}
	return resp.AppendCommand(nil, "GET", space.Prefix+keys.Key{Kind: keys.Managed}.Path(""))
}

// Reset ends the connections by which the hub follows changes. It opens new ones, and reads again what it has kept, among it that
// something did not exist which now is shared.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.followers {
		_ = conn.Close()
	}
}

// follows notes that the hub follows changes by a connection.
func (s *Server) follows(hub net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[hub] = struct{}{}
}

func (s *Server) ended(hub net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followers, hub)
}

// pushFilter reads Redis' replies without the pushes about what is not shared: messages, and names of changed keys.
type pushFilter struct {
	server  *Server
	source  *bufio.Reader
	replies resp.ReplyScanner
	ready   []byte // to be read
	buffer  []byte // of ready
}

// Read implements io.Reader.
func (f *pushFilter) Read(b []byte) (int, error) {
	for len(f.ready) == 0 {
		if err := f.prepare(); err != nil {
			return 0, err
		}
	}
	n := copy(b, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// prepare makes more ready: a whole push, or what there is of a reply.
func (f *pushFilter) prepare() error {
	first, err := f.source.Peek(1)
	if err != nil {
		return err
	}
	if f.replies.BetweenReplies() && first[0] == '>' {
		push, err := resp.ReadReply(f.source, maxPush, nil)
		if err != nil {
			return fmt.Errorf("a push: %w", err)
		}
		f.ready = f.server.filterPush(push)
		return nil
	}
	there, err := f.source.Peek(f.source.Buffered())
	if err != nil {
		return err
	}
	n, _, err := f.replies.NextReply(there)
	f.ready = append(f.buffer[:0], there[:n]...)
	f.buffer = f.ready
	_, _ = f.source.Discard(n) // which is there
	return err
}

// filterPush returns what the hub may have of a push, nothing if that is nothing.
func (s *Server) filterPush(push []byte) []byte {
	elements := resp.Elements(push)
	if len(elements) < 2 {
		return nil
	}
	kind, _ := resp.Text(elements[0])
	switch string(kind) {
	case "invalidate":
		return s.filterInvalidation(push, elements[1])
	case "message", "pmessage": // before the last is the channel
		if channel, _ := resp.Text(elements[len(elements)-2]); !s.shared(channel) {
			return nil
		}
	}
	return push
}

func (s *Server) filterInvalidation(push, list []byte) []byte {
	if resp.Null(list) { // all keys
		return push
	}
	var kept []byte
	count := 0
	for _, element := range resp.Elements(list) {
		if name, _ := resp.Text(element); s.shared(name) {
			kept = append(kept, element...)
			count++
		}
	}
	if count == 0 {
		return nil
	}
	out := redcon.AppendBulkString([]byte(">2\r\n"), "invalidate")
	return append(redcon.AppendArray(out, count), kept...)
}

func (s *Server) newPushFilter(replies io.Reader) *pushFilter {
	return &pushFilter{server: s, source: bufio.NewReader(replies)}
}
