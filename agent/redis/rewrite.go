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

// maxRewritten is how large a value may be, compressed or not, that is rewritten: what a thousand objects take, manifests
// included. A larger one is passed on as it is.
const maxRewritten = 32 << 20

// rewriter reads Redis' replies, and names applications that are resources of other applications as the hub shows them: the UI
// links to them by these names. It looks into values alone, one at a time; only they are strings.
type rewriter struct {
	source  *bufio.Reader
	move    argocd.Move
	replies resp.ReplyScanner
	ready   []byte // to be read
	buffer  []byte // of ready, for what is not rewritten
}

func newRewriter(source io.Reader, move argocd.Move) *rewriter {
	return &rewriter{source: bufio.NewReader(source), move: move}
}

// Read implements io.Reader.
func (r *rewriter) Read(b []byte) (int, error) {
	for len(r.ready) == 0 {
		if err := r.prepare(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// prepare makes more ready: a whole value, or what there is of anything else.
func (r *rewriter) prepare() error {
	first, err := r.source.Peek(1)
	if err != nil {
		return err
	}
	if !r.replies.BetweenReplies() || first[0] != '$' {
		return r.copyReply()
	}
	line, err := r.source.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("the length of a value: %w", err)
	}
	length, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || length < 0 || length > maxRewritten {
		r.ready = append(r.buffer[:0], line...)
		r.buffer = r.ready
		_, _, err := r.replies.NextReply(r.ready) // which finds out whether it is no length
		return err
	}
	value := make([]byte, length+len("\r\n"))
	if _, err := io.ReadFull(r.source, value); err != nil {
		return fmt.Errorf("a value: %w", err)
	}
	r.ready = redcon.AppendBulk(nil, rewrite(r.move, value[:length]))
	return nil
}

// copyReply makes ready what there is of a reply.
func (r *rewriter) copyReply() error {
	there, err := r.source.Peek(r.source.Buffered())
	if err != nil {
		return err
	}
	n, _, err := r.replies.NextReply(there)
	r.ready = append(r.buffer[:0], there[:n]...)
	r.buffer = r.ready
	_, _ = r.source.Discard(n) // which is there
	return err
}

// rewrite returns a value with its applications renamed. One that has none is returned as it came, and so is one that cannot be
// read: Argo CD will report that.
func rewrite(move argocd.Move, value []byte) []byte {
	text, compressed := value, bytes.HasPrefix(value, []byte("\x1f\x8b"))
	if compressed {
		inflated, err := gzip.NewReader(bytes.NewReader(value))
		if err != nil {
			return value
		}
		if text, err = io.ReadAll(io.LimitReader(inflated, maxRewritten+1)); err != nil || len(text) > maxRewritten {
			return value
		}
	}
	text, changed := rewriteTree(move, text)
	switch {
	case !changed:
		return value
	case !compressed:
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

// rewriteTree renames the applications in a resource tree, or in a part of one, or in a list of managed resources, and reports
// whether there were any.
func rewriteTree(move argocd.Move, text []byte) ([]byte, bool) {
	if !bytes.Contains(text, []byte(nested)) {
		return text, false
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return rewriteList(move, text)
	}
	return rewriteFields(move, text, "nodes", "orphanedNodes")
}

// rewriteFields renames the applications in lists that are fields of an object.
func rewriteFields(move argocd.Move, text []byte, lists ...string) ([]byte, bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return text, false
	}
	changed := false
	for _, field := range lists {
		if list, moved := rewriteList(move, object[field]); moved {
			object[field], changed = list, true
		}
	}
	var self struct{ Group, Kind, Namespace string }
	if json.Unmarshal(text, &self) == nil && move.Concerns(self.Group, self.Kind, self.Namespace) {
		object["namespace"], changed = json.RawMessage(strconv.Quote(move.To)), true
	}
	return encoded(text, object, changed)
}

// rewriteList renames the applications in a list of resources: those themselves, and what a resource belongs to.
func rewriteList(move argocd.Move, text []byte) ([]byte, bool) {
	var list []json.RawMessage
	if !bytes.Contains(text, []byte(nested)) || json.Unmarshal(text, &list) != nil {
		return text, false
	}
	changed := false
	for i, resource := range list {
		if !bytes.Contains(resource, []byte(nested)) {
			continue
		}
		if resource, moved := rewriteFields(move, resource, "parentRefs"); moved {
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
