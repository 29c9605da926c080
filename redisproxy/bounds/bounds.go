// Package bounds checks how large a value of an agent's becomes in argocd-server, which inflates and decodes what is in Redis without
// a bound of its own: a megabyte may inflate to a gigabyte, and 30 kB to millions of "null", each of which becomes a ResourceNode of some 250
// bytes. Values are looked at piece by piece, and nothing of them is kept.
//
// It is package jsonsize that counts. This package inflates, and knows the limits of what Argo CD keeps in Redis.
package bounds

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
)

// Limits are what a value may become, in bytes.
type Limits struct {
	Size   int64 // of JSON
	Memory int64 // that argocd-server takes for what it decodes the JSON to
}

// Default limits are above what large applications need: a tree of 10,000 objects has some 7 MiB, and counts as 70 MiB of memory.
const (
	DefaultSize   = 128 << 20
	DefaultMemory = 256 << 20
)

// Complete returns the limits, with the defaults in place of zeros.
func (l Limits) Complete() Limits {
	return Limits{Size: cmp.Or(l.Size, DefaultSize), Memory: cmp.Or(l.Memory, DefaultMemory)}
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
	var seen jsonsize.Counter
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		_, _ = seen.Write(piece[:n]) // never fails
		switch {
		case seen.Bytes() > limits.Size:
			return fmt.Errorf("%w: its %d bytes inflate to more than %d MiB: raise --max-value-size of redisproxy if they may", ErrTooLarge,
				len(value), limits.Size>>20)
		case seen.Memory(jsonsize.ElementOfArgoCD) > limits.Memory:
			return fmt.Errorf("%w: decoded, its %d bytes take more than %d MiB of memory: raise --max-value-memory of redisproxy if they may",
				ErrTooLarge, len(value), limits.Memory>>20)
		case err != nil:
			return nil //nolint:nilerr // the end, or what argocd-server says too
		}
	}
}
