package certs

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
)

// Blocks is PEM text as an Origin holds it: either a certificate (with its chain) and its key, or trusted CAs.
type Blocks struct {
	Certificate []byte
	Key         []byte
	CAs         []byte
	// Bundles are CAs by the SPIFFE trust domains that they are trusted for, instead of CAs.
	Bundles map[string][]byte
}

// digest tells equal blocks from different ones.
func (b Blocks) digest() [sha256.Size]byte {
	hash := sha256.New()
	blocks := [][]byte{b.Certificate, b.Key, b.CAs}
	for _, trustDomain := range slices.Sorted(maps.Keys(b.Bundles)) {
		blocks = append(blocks, []byte(trustDomain), b.Bundles[trustDomain])
	}
	for _, block := range blocks {
		sum := sha256.Sum256(block)
		hash.Write(sum[:])
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// Origin is a place where PEM text is kept and may change.
type Origin interface {
	// Watch reports what the place holds, or why it holds nothing, at the start and then after each change. It blocks
	// until ctx ends, which is no error, or until the place cannot be watched at all. It calls report from one
	// goroutine at a time.
	Watch(ctx context.Context, report func(Blocks, error)) error
	// String names the place as a person would look for it.
	String() string
}

// What an Origin reports that says nothing about the material, only about its place. Their texts differ from one attempt to the next, so
// they count as repeated when they are of one kind. Origins wrap them.
var (
	// ErrUnreachable means that the place does not answer.
	ErrUnreachable = errors.New("unreachable")
	// ErrDenied means that we may not look.
	ErrDenied = errors.New("not allowed")
	// ErrSilent is ErrUnreachable for a place of which nobody else logs that.
	ErrSilent = errors.New("no answer")
)

// fixed is an Origin in memory.
type fixed struct {
	name   string
	blocks Blocks
}

// Fixed returns an Origin that never changes, for certificates that the process made itself. The name is for messages.
func Fixed(name string, blocks Blocks) Origin { return fixed{name: name, blocks: blocks} }

func (f fixed) String() string { return f.name }

func (f fixed) Watch(ctx context.Context, report func(Blocks, error)) error {
	report(f.blocks, nil)
	<-ctx.Done()
	return nil
}
