package converge

import "context"

// Message is one of the messages below.
type Message interface{ message() }

// Put tells the replica to hold an object. It is answered by an Ack. Seq numbers the Puts and Deletes of a facet within
// one session, from one: what arrives twice is done once.
type Put struct {
	Facet Facet
	Key   Key
	Seq   uint64
	Object
}

// Delete tells the replica to hold nothing under a key. It is answered by an Ack. UID is that of the source object that
// was deleted, or empty when the source does not know.
type Delete struct {
	Facet Facet
	Key   Key
	Seq   uint64
	UID   string
}

// Ack answers the Put or Delete with the same Seq.
type Ack struct {
	Facet Facet
	Key   Key
	Seq   uint64
	Result
}

// ReplicaChanged tells the source that what the replica holds under a key changed behind its back, and what that is now.
type ReplicaChanged struct {
	Facet Facet
	Key   Key
	State
}

// Digest is what the replica holds, in digests per bucket. It begins a resync.
type Digest struct {
	Facet Facet
	// Resync numbers the resyncs of a facet within one session; the messages that follow repeat it.
	Resync uint64
	// Count is the number of objects held.
	Count int
	// Buckets holds the digest of every bucket that is not empty.
	Buckets map[Bucket]BucketDigest
}

// BucketRequest asks for the entries of some buckets or, when it names none, for a new Digest.
type BucketRequest struct {
	Facet   Facet
	Resync  uint64
	Buckets []Bucket
}

// BucketEntries lists everything that the replica holds in one bucket.
type BucketEntries struct {
	Facet   Facet
	Resync  uint64
	Bucket  Bucket
	Entries []Entry
}

// Entry is one key of BucketEntries.
type Entry struct {
	Key Key
	State
}

func (Put) message()            {}
func (Delete) message()         {}
func (Ack) message()            {}
func (ReplicaChanged) message() {}
func (Digest) message()         {}
func (BucketRequest) message()  {}
func (BucketEntries) message()  {}

// Conn carries messages, in order, to and from the peer. Each method is called by one goroutine at a time. Both return
// an error when the connection is over, and the context's error when that ends first; after an error the connection is
// not used again.
type Conn interface {
	Send(context.Context, Message) error
	Recv(context.Context) (Message, error)
}
