package redis

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// maxShown is how large a value may be, packed or not, that is looked into: what a thousand objects take, manifests included.
// A larger one is passed on as it is.
const maxShown = 32 << 20

// shown reads what Redis says, with the applications that are resources of others named as the hub shows them: the UI links to
// them by these names. Values are all that is looked into, one at a time; only they are strings.
type shown struct {
	source  *bufio.Reader
	move    argocd.Move
	replies resp.Replies
	ready   []byte // to be read
	buffer  []byte // of ready, for what is passed on as it is
}

func newShown(source io.Reader, move argocd.Move) *shown {
	return &shown{source: bufio.NewReader(source), move: move}
}

// Read implements io.Reader.
func (s *shown) Read(b []byte) (int, error) {
	for len(s.ready) == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// next makes more ready: a whole value, or what there is of anything else.
func (s *shown) next() error {
	first, err := s.source.Peek(1)
	if err != nil {
		return err
	}
	if !s.replies.Between() || first[0] != '$' {
		return s.pass()
	}
	line, err := s.source.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("the length of a value: %w", err)
	}
	length, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || length < 0 || length > maxShown {
		s.ready = append(s.buffer[:0], line...)
		s.buffer = s.ready
		_, _, err := s.replies.Next(s.ready) // which finds out whether it is no length
		return err
	}
	value := make([]byte, length+len("\r\n"))
	if _, err := io.ReadFull(s.source, value); err != nil {
		return fmt.Errorf("a value: %w", err)
	}
	s.ready = redcon.AppendBulk(nil, moved(s.move, value[:length]))
	return nil
}

// pass makes ready what there is of a reply.
func (s *shown) pass() error {
	there, err := s.source.Peek(s.source.Buffered())
	if err != nil {
		return err
	}
	n, _, err := s.replies.Next(there)
	s.ready = append(s.buffer[:0], there[:n]...)
	s.buffer = s.ready
	_, _ = s.source.Discard(n) // which is there
	return err
}

// moved returns a value with its applications moved. One that has none is returned as it came, and so is what cannot be read:
// that is for Argo CD to complain of.
func moved(move argocd.Move, value []byte) []byte {
	text, packed := value, bytes.HasPrefix(value, []byte("\x1f\x8b"))
	if packed {
		inflated, err := gzip.NewReader(bytes.NewReader(value))
		if err != nil {
			return value
		}
		if text, err = io.ReadAll(io.LimitReader(inflated, maxShown+1)); err != nil || len(text) > maxShown {
			return value
		}
	}
	text, changed := inTree(move, text)
	switch {
	case !changed:
		return value
	case !packed:
		return text
	}
	var out bytes.Buffer
	deflating := gzip.NewWriter(&out)
	_, _ = deflating.Write(text) // a buffer takes all
	_ = deflating.Close()
	return out.Bytes()
}

// nested is what is in a text with an application among its resources, as Argo CD writes it. Manifests are in strings, with
// their quotation marks behind backslashes, and have none of it.
const nested = `"kind":"Application"`

// inTree moves the applications in a resource tree, or in a part of one, or in a list of managed resources, and reports
// whether there were any.
func inTree(move argocd.Move, text []byte) ([]byte, bool) {
	if !bytes.Contains(text, []byte(nested)) {
		return text, false
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return inList(move, text)
	}
	return inFields(move, text, "nodes", "orphanedNodes")
}

// inFields moves the applications in lists that are fields of an object.
func inFields(move argocd.Move, text []byte, lists ...string) ([]byte, bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return text, false
	}
	changed := false
	for _, field := range lists {
		if list, moved := inList(move, object[field]); moved {
			object[field], changed = list, true
		}
	}
	var self struct{ Group, Kind, Namespace string }
	if json.Unmarshal(text, &self) == nil && move.Concerns(self.Group, self.Kind, self.Namespace) {
		object["namespace"], changed = json.RawMessage(strconv.Quote(move.To)), true
	}
	return encoded(text, object, changed)
}

// inList moves the applications in a list of resources: those themselves, and what a resource belongs to.
func inList(move argocd.Move, text []byte) ([]byte, bool) {
	var list []json.RawMessage
	if !bytes.Contains(text, []byte(nested)) || json.Unmarshal(text, &list) != nil {
		return text, false
	}
	changed := false
	for i, resource := range list {
		if !bytes.Contains(resource, []byte(nested)) {
			continue
		}
		if resource, moved := inFields(move, resource, "parentRefs"); moved {
			list[i], changed = resource, true
		}
	}
	return encoded(text, list, changed)
}

// encoded encodes what was changed.
func encoded(text []byte, value any, changed bool) ([]byte, bool) {
	if !changed {
		return text, false
	}
	out, err := json.Marshal(value)
	if err != nil {
		return text, false
	}
	return out, true
}
