package converge

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
)

// Guard are the limits of the deletion guard. A resync may delete Floor objects of a facet, or Share percent of what the replica
// holds of it, whichever is more, but not all. Beyond that an operator has to confirm. A share of 100 turns the guard off.
type Guard struct{ Floor, Share int }

// DefaultGuard returns the limits that hold unless others are set.
func DefaultGuard() Guard { return Guard{Floor: 10, Share: 20} }

// isOff reports whether nothing is to be held.
func (g Guard) isOff() bool { return g.Share >= 100 }

// holds reports whether an operator has to confirm this many deletions of so many objects. all says that these are all there are.
func (g Guard) holds(deletions, total int, all bool) bool {
	if deletions == 0 || g.isOff() {
		return false
	}
	return all || deletions > g.Floor && deletions*100 > total*g.Share
}

// SourceConfig is a source with how the deletion guard treats it.
type SourceConfig struct {
	Source
	// GuardExempt lets a resync delete whatever it finds. It is for what is short-lived by nature.
	GuardExempt bool
	// OnlyShown says that what the peer holds only shows what is here. Nothing is lost with it, so a resync may delete all of it, if that is
	// little.
	OnlyShown bool
	// AccessRevoked, if set, reports whether the source object with this UID is still there and somebody decided that the peer
	// may not have it any more. A resync deletes the peer's, and the guard does not count it. It answers from memory, as the
	// source's methods do.
	AccessRevoked func(key Key, uid string) bool
	// Withholds, if set, reports whether an object is not to be sent for now, so that the peer keeps what it has under the key. An object
	// that describes its own deletion is sent. It answers from memory. Once it says otherwise, Changed is called or a resync comes.
	Withholds func(Key) bool
	// Collateral, if set, knows of source objects that nobody deleted by themselves.
	Collateral Collateral
	// Confirm, if set, asks the store itself, and not the cache, whether the peer should hold nothing under a key, of which it holds an object
	// with that UID. It is asked before a deletion that nobody saw, but a resync found: the cache may be behind. If it was, it has the
	// answer when Confirm returns, and Changed was called.
	Confirm func(ctx context.Context, key Key, uid string) (bool, error)
	// Revision and Reach are for one of several processes that are the source, each with a cache of its own. Revision returns one that is
	// as new as all that the source shows, and Reach waits until it shows all changes up to a revision: a peer that comes from another
	// process must not see the truth go back.
	Revision func() uint64
	Reach    func(ctx context.Context, revision uint64) error
}

// Verdict says why a source object is gone, or is being deleted.
type Verdict uint8

// The verdicts. What is undecided waits, and Changed or Resync is called once it is decided.
const (
	Deliberate Verdict = iota // somebody deleted it, or nothing else is known
	Undecided
	TakenAlong // with its namespace, or with the definition of its kind
)

// Collateral tells source objects that somebody deleted from those that went with something else: their namespace, or the definition
// of their kind. The guard holds the deletions of these, however few they are. It answers from memory.
type Collateral interface {
	// Of returns the verdict about the source object with a UID. there says that it is not gone yet.
	Of(uid string, there bool) Verdict
	// Any reports whether there may be any that were taken along.
	Any() bool
	// Release says that an operator confirmed the deletion of objects.
	Release(uids []string)
}

// verdict is that of the source's Collateral, if it has one.
func (o SourceConfig) verdict(uid string, there bool) Verdict {
	if o.Collateral == nil || o.GuardExempt || uid == "" {
		return Deliberate
	}
	return o.Collateral.Of(uid, there)
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

// maxPausedKeys is how many keys PausedDeletions has.
const maxPausedKeys = 200

// PausedDeletions are deletions that wait for an operator.
type PausedDeletions struct {
	Facet Facet
	// Deletions is how many objects would be deleted, of Total that the replica holds.
	Deletions, Total int
	// TakenAlong is how many of the deletions are of objects that went with their namespace or the definition of their kind.
	TakenAlong int
	// Keys are the first of the objects by name. The replica may have made them up.
	Keys []Key
	// Token confirms exactly these deletions, and no others that may come later.
	Token string
}

// newPausedDeletions returns the deletions of what a resync found and of what was taken along, of so many objects.
func newPausedDeletions(f Facet, found, along map[Key]State, total int) *PausedDeletions {
	all := maps.Clone(found)
	if all == nil {
		all = make(map[Key]State, len(along))
	}
	maps.Copy(all, along)
	keys := slices.Sorted(maps.Keys(all))
	var digests []byte
	for _, k := range keys {
		digests = binary.BigEndian.AppendUint64(digests, uint64(entryDigest(k, State{UID: all[k].UID})))
	}
	return &PausedDeletions{
		Facet: f, Deletions: len(keys), Total: max(total, len(keys)), TakenAlong: len(along), Keys: keys[:min(len(keys), maxPausedKeys)],
		Token: VersionOf(digests).String()[:8],
	}
}
