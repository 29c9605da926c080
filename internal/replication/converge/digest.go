package converge

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
)

// Bucket is a part of a facet's key space: the first byte of the key's hash.
type Bucket uint8

// Digest stands for a set of entries: the sum, modulo 2^64, of their hashes. It does not depend on their order, and an
// entry is added or taken away without looking at the others.
type Digest uint64

// BucketOf returns the bucket that a key belongs to. Both sides must agree on it; it is part of the protocol.
func BucketOf(k Key) Bucket {
	sum := sha256.Sum256([]byte(k))
	return Bucket(sum[0])
}

// digestOf returns the digest of a single entry. Lengths are hashed too, so that no two entries read alike.
func digestOf(k Key, s State) Digest {
	b := make([]byte, 0, len(k)+len(s.UID)+len(s.Version)+8)
	b = binary.BigEndian.AppendUint32(b, uint32(len(k))) //nolint:gosec // a key is far shorter than 4 GiB
	b = append(b, k...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.UID))) //nolint:gosec // as above
	b = append(b, s.UID...)
	b = append(b, s.Version[:]...)
	sum := sha256.Sum256(b)
	return Digest(binary.BigEndian.Uint64(sum[:8]))
}

// summarise returns the number of entries and the digest of every bucket that is not empty.
func summarise(all iter.Seq2[Key, State]) (int, map[Bucket]Digest) {
	count, buckets := 0, make(map[Bucket]Digest)
	for k, s := range all {
		count++
		buckets[BucketOf(k)] += digestOf(k, s)
	}
	return count, buckets
}

// differing returns the buckets in which a and b are not the same.
func differing(a, b map[Bucket]Digest) []Bucket {
	var out []Bucket
	for i := range 256 {
		bucket := Bucket(i)
		if a[bucket] != b[bucket] {
			out = append(out, bucket)
		}
	}
	return out
}
