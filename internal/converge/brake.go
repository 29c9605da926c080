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
