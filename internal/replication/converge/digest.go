package converge

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
)

// Bucket is a part of a facet's key space: the first byte of the key's hash.
type Bucket uint8

// BucketDigest stands for a set of entries: the sum, modulo 2^64, of their hashes. It does not depend on their order, and an
// entry is added or taken away without looking at the others.
type BucketDigest uint64

// BucketOf returns the bucket that a key belongs to. Both sides must agree on it; it is part of the protocol.
func BucketOf(k Key) Bucket {
	sum := sha256.Sum256([]byte(k))
	return Bucket(sum[0])
}

// entryDigest returns the digest of a single entry. Lengths are hashed too, so that no two entries read alike.
func entryDigest(k Key, s State) BucketDigest {
	b := make([]byte, 0, len(k)+len(s.UID)+len(s.Version)+8)
	b = binary.BigEndian.AppendUint32(b, uint32(len(k))) //nolint:gosec // a key is far shorter than 4 GiB
	b = append(b, k...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.UID))) //nolint:gosec // as above
	b = append(b, s.UID...)
	b = append(b, s.Version[:]...)
	sum := sha256.Sum256(b)
	return BucketDigest(binary.BigEndian.Uint64(sum[:8]))
}

// digestBuckets returns the number of entries and the digest of every bucket that is not empty.
func digestBuckets(all iter.Seq2[Key, State]) (int, map[Bucket]BucketDigest) {
	count, buckets := 0, make(map[Bucket]BucketDigest)
	for k, s := range all {
		count++
		buckets[BucketOf(k)] += entryDigest(k, s)
	}
	return count, buckets
}

// differingBuckets returns the buckets in which a and b are not the same.
func differingBuckets(a, b map[Bucket]BucketDigest) []Bucket {
	var out []Bucket
	for i := range 256 {
		bucket := Bucket(i)
		if a[bucket] != b[bucket] {
			out = append(out, bucket)
		}
	}
	return out
}
