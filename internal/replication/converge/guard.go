package converge

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A resync may delete guardFloor objects, or one in guardShare of what the replica holds, whichever is more. Beyond that
// an operator has to confirm.
const (
	guardFloor = 10
	guardShare = 5
)

// SourceConfig is a source with how the deletion guard treats it.
type SourceConfig struct {
	Source
	// GuardExempt lets a resync delete whatever it finds. It is for what is short-lived by nature.
	GuardExempt bool
	// AccessRevoked, if set, reports whether the source object with this UID is still there and somebody decided that the peer
	// may not have it any more. A resync deletes the peer's, and the guard does not count it. It answers from memory, as the
	// source's methods do.
	AccessRevoked func(key Key, uid string) bool
}

// takeRevoked removes from deletions those that somebody decided, and returns them.
func (o SourceConfig) takeRevoked(deletion map[Key]State) map[Key]State {
	decided := make(map[Key]State)
	if o.AccessRevoked == nil {
		return decided
	}
	for k, s := range deletion {
		if o.AccessRevoked(k, s.UID) {
			decided[k] = s
			delete(deletion, k)
		}
	}
	return decided
}

// PausedDeletions are deletions that wait for an operator.
type PausedDeletions struct {
	Facet Facet
	// Deletions is how many objects would be deleted, of Total that the replica holds.
	Deletions, Total int
	// Token confirms exactly these deletions, and no others that may come later.
	Token string
}

// guardDeletions returns what to pause, or nil if these deletions may go.
func guardDeletions(f Facet, deletion map[Key]State, held int) *PausedDeletions {
	n := len(deletion)
	if n <= guardFloor || n*guardShare <= held {
		return nil
	}
	var digests []byte
	for _, k := range slices.Sorted(maps.Keys(deletion)) {
		digests = binary.BigEndian.AppendUint64(digests, uint64(entryDigest(k, deletion[k])))
	}
	return &PausedDeletions{Facet: f, Deletions: n, Total: held, Token: VersionOf(digests).String()[:8]}
}
