package ownership

import (
	"hash/maphash"
	"slices"
)

// index says to which applications objects belong, of which it keeps hashes only. Their seed is random and stays here, so
// that nobody can make up a name that meets another's hash.
type index struct {
	seed   maphash.Seed
	owners map[uint64]mark   // of each hash one owner
	shared map[uint64][]mark // the others, of the few that have several
}

// mark is an application's number, and whether the object is managed by it, in the lowest bit, or only a child.
type mark uint32

func newMark(application uint32, root bool) mark {
	m := mark(application) << 1
	if root {
		m |= 1
	}
	return m
}

func (m mark) application() uint32 { return uint32(m >> 1) }

func (m mark) root() bool { return m&1 == 1 }

// entry is an object of an application, by one of its names.
type entry struct {
	hash uint64
	root bool
}

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), owners: make(map[uint64]mark), shared: make(map[uint64][]mark)}
}

// key returns the hash of words, none of which holds a zero byte.
func (x *index) key(words ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	for _, word := range words {
		_, _ = h.WriteString(word) // never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

func (x *index) object(group, kind, namespace, name string) uint64 {
	return x.key("object", group, kind, namespace, name)
}

func (x *index) uid(uid string) uint64 { return x.key("uid", uid) }

// find adds the owners of a hash to some, which the caller gives so that nothing need be allocated.
func (x *index) find(some []mark, hash uint64) []mark {
	if m, ok := x.owners[hash]; ok {
		some = append(some, m)
		some = append(some, x.shared[hash]...)
	}
	return some
}

// replace exchanges what an application had for what it has, and returns the hashes of that.
func (x *index) replace(application uint32, had []uint64, has []entry) []uint64 {
	for _, hash := range had {
		x.remove(hash, application)
	}
	hashes := make([]uint64, 0, len(has))
	for _, e := range has {
		if x.add(e.hash, newMark(application, e.root)) {
			hashes = append(hashes, e.hash)
		}
	}
	return slices.Clip(hashes)
}

// add reports whether the application did not have the hash before.
func (x *index) add(hash uint64, m mark) bool {
	first, taken := x.owners[hash]
	if !taken {
		x.owners[hash] = m
		return true
	}
	same := func(o mark) bool { return o.application() == m.application() }
	if same(first) || slices.ContainsFunc(x.shared[hash], same) {
		return false
	}
	x.shared[hash] = append(x.shared[hash], m)
	return true
}

func (x *index) remove(hash uint64, application uint32) {
	others := slices.DeleteFunc(x.shared[hash], func(o mark) bool { return o.application() == application })
	if x.owners[hash].application() == application {
		if len(others) == 0 {
			delete(x.owners, hash)
		} else {
			x.owners[hash], others = others[0], others[1:]
		}
	}
	if len(others) == 0 {
		delete(x.shared, hash)
	} else {
		x.shared[hash] = others
	}
}
