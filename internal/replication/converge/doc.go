// Package converge keeps two sides of a connection equal.
//
// # The problem
//
// Two processes each see a set of objects through a cache that follows some store. For every kind of thing that
// they share, a facet, one side is the source, which holds the truth, and the other the replica, which must come to
// hold the same. Either side may restart, the connection may be cut at any message, objects change on both sides
// all the time, and an apply may fail, or fail and yet have happened. Once all of that stops, source and replica
// must be equal, for every facet, soon.
//
// # The idea
//
// State is synchronised, not events. Nothing is queued but keys: the source keeps the set of keys that may differ
// from what the peer holds (its backlog), and builds a message only at the moment of sending it, from the newest
// state. A key that changes ten times while a message about it is under way is sent once more. So memory is bounded
// by the number of objects, and nothing is lost when a queue is full, for there is none.
//
// Nothing is remembered across a connection either. Each side can tell from its cache alone what it holds: for every
// key the UID of the source object that it came from, and a version, which is a hash of the normalised payload.
// Comparing these when a connection begins, and every few minutes after, finds every difference whatever its cause.
//
// # A conversation
//
// The source speaks Put and Delete, the replica answers each with an Ack. There is at most one unanswered message
// per key; different keys proceed side by side.
//
//	source                               replica
//	  │  Put{key, seq, uid, version, payload} → │  applies it
//	  │  ← Ack{key, seq, result}               │
//
// An Ack says Done, Retry (the source tries again, after a backoff, or at once when a Notice says that something changed
// there) or Refused (the source does not try again until the object changes or the next comparison; it is told, so that a
// person can be told). A message that is not answered for long counts as lost.
//
// A write that fails may have happened all the same. So what the source sent last is what the replica keeps from then on,
// whatever came of it, and nothing is put back that the source has replaced or removed. For the same reason the end of a
// conversation breaks nothing off; if what was under way brings news, the next conversation tells it.
//
// The comparison is begun by the replica and decided by the source, because only the source may say Delete:
//
//	│  ← Summary{count, digest per bucket} │  of all that it holds
//	│  Inquiry{buckets that differ} →      │
//	│  ← Holdings{bucket, entries}         │  one for each bucket asked for
//	│  Put, Delete … →                     │  for the keys that differ
//
// What the replica's store made of an object counts as that object: a default that it adds is no difference. Every hour
// or two it is one all the same, since what the store left out it may take by now.
//
// If the source still shows that an object was refused which is found equal, it is told that this is over.
//
// A bucket's digest is the sum of the hashes of its entries, so it does not depend on their order. Until its first
// comparison is over a source sends nothing of that facet: it would not know what to leave out.
//
// When something that the replica holds changes behind its back, it puts back what it last applied, if it retained that
// (see [Holding]), also while no peer is connected. Then, or otherwise at once, it tells the source by a Notice what it
// holds, and the source sends the object again if that is not what it should be.
//
// # The brake
//
// A comparison that would delete more than a fifth of what the replica holds, and more than ten objects, is far more
// often an accident than a wish: an empty cluster restored, a selector mistyped. Then nothing is deleted, the
// [Observer] is told, and the deletions wait for a person's word, given by [Peer.Release]. Nothing slips past it: a key
// is deleted only if the source saw its object go, or if a comparison found it and the brake let it pass. What a Notice
// tells of and the source does not have makes the source ask for a comparison.
//
// The brake is against what is gone by accident. Of an object that is still there, and that the peer should not hold any
// more, the source may know that somebody decided so ([Origin.Withdrawn]): that is deleted whatever else is.
//
// # What a facet provides
//
// A [Source] or a [Replica], each a view of one cache. This package knows nothing of Kubernetes, of the wire, or of
// which facets there are.
package converge
