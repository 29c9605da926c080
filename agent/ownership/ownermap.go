package ownership

import (
	"hash/maphash"
	"slices"
)

// ownerMap maps objects to the applications that own them. It holds only hashes of objects. Their seed is random and stays
// here, so that nobody can construct a name with the hash of another.
type ownerMap struct {
	seed   maphash.Seed
	first  map[uint64]ownerID   // one owner of each hash
	others map[uint64][]ownerID // more owners, of the few hashes that have several
}

// ownerID is an application's number and, in the lowest bit, whether the application manages the object itself. Otherwise the
// object is a child of what it manages.
type ownerID uint32

func newOwnerID(application uint32, root bool) ownerID {
	id := ownerID(application) << 1
	if root {
		id |= 1
	}
	return id
}

func (id ownerID) application() uint32 { return uint32(id >> 1) }

func (id ownerID) root() bool { return id&1 == 1 }

// ownedObject is an object of an application, by one of its hashes.
type ownedObject struct {
	hash uint64
	root bool
}

func newOwnerMap() *ownerMap {
	return &ownerMap{seed: maphash.MakeSeed(), first: make(map[uint64]ownerID), others: make(map[uint64][]ownerID)}
}

// hash returns the hash of words, none of which contains a zero byte.
func (m *ownerMap) hash(words ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	for _, word := range words {
		_, _ = h.WriteString(word) // never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

func (m *ownerMap) hashName(group, kind, namespace, name string) uint64 {
	return m.hash("object", group, kind, namespace, name)
}

func (m *ownerMap) hashUID(uid string) uint64 { return m.hash("uid", uid) }

// appendOwners appends the owners of a hash to a slice, so that nothing need be allocated.
func (m *ownerMap) appendOwners(to []ownerID, hash uint64) []ownerID {
	if id, ok := m.first[hash]; ok {
		to = append(to, id)
		to = append(to, m.others[hash]...)
	}
	return to
}

// replace replaces the hashes of an application by those of its objects now, and returns these.
func (m *ownerMap) replace(application uint32, old []uint64, now []ownedObject) []uint64 {
	for _, hash := range old {
		m.remove(hash, application)
	}
	hashes := make([]uint64, 0, len(now))
	for _, o := range now {
		if m.add(o.hash, newOwnerID(application, o.root)) {
			hashes = append(hashes, o.hash)
		}
	}
	return slices.Clip(hashes)
}

// add reports whether the application did not have the hash before.
func (m *ownerMap) add(hash uint64, id ownerID) bool {
	first, taken := m.first[hash]
	if !taken {
		m.first[hash] = id
		return true
	}
	same := func(other ownerID) bool { return other.application() == id.application() }
	if same(first) || slices.ContainsFunc(m.others[hash], same) {
		return false
	}
	m.others[hash] = append(m.others[hash], id)
	return true
}

func (m *ownerMap) remove(hash uint64, application uint32) {
	others := slices.DeleteFunc(m.others[hash], func(id ownerID) bool { return id.application() == application })
	if m.first[hash].application() == application {
		if len(others) == 0 {
			delete(m.first, hash)
		} else {
			m.first[hash], others = others[0], others[1:]
		}
	}
	if len(others) == 0 {
		delete(m.others, hash)
	} else {
		m.others[hash] = others
	}
}
