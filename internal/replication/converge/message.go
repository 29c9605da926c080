package converge

// Message is one of the messages below.
type Message interface{ message() }

// Put tells the replica to hold an object. It is answered by an Ack. Seq numbers the Puts and Deletes of a facet within
// one session, from one: what arrives twice is done once.
type Put struct {
	Facet Facet
	Key   Key
	Seq   uint64
	Object
	// Revision is one of the source's that shows the object, 0 if the source has none. See SourceConfig.
	Revision uint64
}

// Delete tells the replica to hold nothing under a key. It is answered by an Ack. UID is that of the source object that
// was deleted, or empty when the source does not know.
type Delete struct {
	Facet Facet
	Key   Key
	Seq   uint64
	UID   string
	// Revision is as in Put.
	Revision uint64
}

// Ack answers the Put or Delete with the same Seq.
type Ack struct {
	Facet Facet
	Key   Key
	Seq   uint64
	Result
}

// ReplicaChanged reports to the source that a replica object was changed by others, and its new state.
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

// Heartbeat says that the sender is there. It needs no answer.
type Heartbeat struct{}

func (Heartbeat) message()      {}
func (Put) message()            {}
func (Delete) message()         {}
func (Ack) message()            {}
func (ReplicaChanged) message() {}
func (Digest) message()         {}
func (BucketRequest) message()  {}
func (BucketEntries) message()  {}

// Conn carries messages, in order, to and from the peer.
type Conn interface {
	// Send sends a message. It is called by one goroutine at a time, and not again after an error. It returns io.EOF if the
	// connection is over for a reason that Deliver's caller gets.
	Send(Message) error
	// Deliver has messages handled as they are received, one at a time, and ended called once when the connection is over.
	// The next message is received when handle returns; no more are while it blocks. It does not block itself.
	Deliver(handle func(Message), ended func(error))
	// Close makes Send fail, and the connection end, with this error. It may be called several times; the first counts.
	Close(error)
}
