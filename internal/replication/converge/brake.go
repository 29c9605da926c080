package converge

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A comparison may delete brakeCount objects, or one in brakeShare of what the replica holds, whichever is more. Beyond
// that a person decides.
const (
	brakeCount = 10
	brakeShare = 5
)

// Origin is a source with how it is treated.
type Origin struct {
	Source
	// Unbraked lets a comparison delete whatever it finds. It is for what is short-lived by nature.
	Unbraked bool
	// Withdrawn, if set, reports whether what the peer holds of the object with this UID, and should not, was taken from it by a
	// decision: the object itself is still there. A comparison deletes that, and the brake does not count it. It answers from
	// memory, as the source's methods do.
	Withdrawn func(key Key, uid string) bool
}

// withdrawn takes out of deletions those that somebody decided, and returns them.
func (o Origin) withdrawn(deletion map[Key]State) map[Key]State {
	decided := make(map[Key]State)
	if o.Withdrawn == nil {
		return decided
	}
	for k, s := range deletion {
		if o.Withdrawn(k, s.UID) {
			decided[k] = s
			delete(deletion, k)
		}
	}
	return decided
}

// Brake says that deletions were held back.
type Brake struct {
	Facet Facet
	// Deletions is how many objects would be deleted, of Held that the replica holds.
	Deletions, Held int
	// Word releases exactly these deletions, and no others that may come later.
	Word string
}

// judge returns the brake that holds these deletions back, or nil if they may go.
func judge(f Facet, deletion map[Key]State, held int) *Brake {
	n := len(deletion)
	if n <= brakeCount || n*brakeShare <= held {
		return nil
	}
	var digests []byte
	for _, k := range slices.Sorted(maps.Keys(deletion)) {
		digests = binary.BigEndian.AppendUint64(digests, uint64(digestOf(k, deletion[k])))
	}
	return &Brake{Facet: f, Deletions: n, Held: held, Word: VersionOf(digests).String()[:8]}
}
