// Package bounds checks how large a value of an agent's becomes in argocd-server, which inflates and decodes what is in Redis without
// a bound of its own: a megabyte may inflate to a gigabyte, and a gigabyte of "[[],[],…" decodes to many. Values are looked at piece by
// piece, and nothing of them is kept.
package bounds

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Limits are what a value may become.
type Limits struct {
	Bytes int64 // of JSON
	Nodes int64 // of JSON: objects, arrays, and the members of both
}

// Default limits are above what the largest applications need: a tree of 50,000 objects has some 30 MiB and 1.5 million nodes.
const (
	DefaultBytes = 128 << 20
	DefaultNodes = 4_000_000
)

// Complete returns the limits, with the defaults in place of zeros.
func (l Limits) Complete() Limits {
	return Limits{Bytes: cmp.Or(l.Bytes, DefaultBytes), Nodes: cmp.Or(l.Nodes, DefaultNodes)}
}

// ErrTooLarge is wrapped by the errors of Check.
var ErrTooLarge = errors.New("the value is too large for argocd-server")

// Check returns an error if a value exceeds the limits, which says by what. A value that is malformed passes as far as it can be
// read: argocd-server, which reads it in the same way, gets no further. So this inflates by the same library as Argo CD.
func Check(value []byte, compressed bool, limits Limits) error {
	var from io.Reader = bytes.NewReader(value)
	if compressed {
		inflated, err := gzip.NewReader(from)
		if err != nil {
			return nil //nolint:nilerr // argocd-server says so
		}
		from = inflated
	}
	var seen counter
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		seen.count(piece[:n])
		switch {
		case seen.bytes > limits.Bytes:
			return fmt.Errorf("%w: its %d bytes inflate to more than %d MiB: raise --max-value-size of redisproxy if they may", ErrTooLarge,
				len(value), limits.Bytes>>20)
		case seen.nodes > limits.Nodes:
			return fmt.Errorf("%w: it has more than %d JSON nodes: raise --max-value-nodes of redisproxy if it may", ErrTooLarge, limits.Nodes)
		case err != nil:
			return nil //nolint:nilerr // the end, or what argocd-server says too
		}
	}
}

// counter counts the bytes and the nodes of a JSON text that comes in pieces.
type counter struct {
	bytes, nodes    int64
	quoted, escaped bool // within a string, and behind a backslash in it
}

func (c *counter) count(piece []byte) {
	c.bytes += int64(len(piece))
	for _, b := range piece {
		switch {
		case c.escaped:
			c.escaped = false
		case c.quoted:
			c.escaped, c.quoted = b == '\\', b != '"'
		case b == '"':
			c.quoted = true
		case b == '{' || b == '[' || b == ',':
			c.nodes++
		}
	}
}
