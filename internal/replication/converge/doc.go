// Package converge keeps the two sides of a connection equal.
//
// # The problem
//
// Two processes each see a set of objects through a cache that follows some store. What they share is divided into
// facets, one for each kind of object. In every facet one side is the source, which holds the truth, and the other is
// the replica, which must come to hold the same. Either side may restart, the connection may be cut at any message,
// objects change on both sides all the time, and an apply may fail, or fail and yet have happened. Once all of that
// stops, source and replica must be equal, for every facet, soon.
//
// # The idea
//
// State is synchronised, not events. It is level-triggered, as a Kubernetes controller is: the source keeps a set of
// keys that may differ from what the replica holds (the backlog), and builds a message only when it sends it, from the
// newest state. A key that changes ten times while a message about it is unanswered is sent once more. So memory is
// bounded by the number of objects, and no event is lost when a queue is full, for there is no queue of events.
//
// Nothing is remembered across connections either. Each side can compute from its cache alone what it holds: for every
// key the UID of the source object that it came from, and a version, which is a hash of the normalised payload.
// A resync compares these when a session begins, and every few minutes after. It finds every difference, whatever its
// cause.
//
// # A session
//
// A session is what two peers say over one connection. The source sends Put and Delete, the replica answers each with an
// Ack. At most one message per key is unanswered; different keys proceed in parallel.
//
//	source                                    replica
//	  │  Put{key, seq, uid, version, payload} → │  applies it
//	  │  ← Ack{key, seq, result}                │
//
// The result of an Ack is one of three. Done. Retry: the source tries again after a backoff, or as soon as a
// ReplicaChanged says that something changed there. Refused: the source does not try again before the object changes or
// the next resync; it gets the reason, so that it can show it to a user. A message that stays unanswered for long
// counts as lost.
//
// A write that fails may have happened all the same. So the replica keeps what the source sent last, whatever came of
// it, and never restores what the source has replaced or removed. For the same reason the end of a session cancels no
// apply that has begun; what changes by it is reported in the next session.
//
// # A resync
//
// The replica begins a resync and the source decides, because only the source may say Delete:
//
//	│  ← Digest{count, digest per bucket} │  of all that the replica holds
//	│  BucketRequest{buckets} →           │  those that differ
//	│  ← BucketEntries{bucket, entries}   │  one for each bucket requested
//	│  Put, Delete … →                    │  for the keys that differ
//
// A bucket's digest is the sum of the hashes of its entries, so it does not depend on their order. A source sends
// nothing of a facet until the first resync of the session is over: it would not know what to leave out.
//
// The source's cache may be behind the store. What a resync found to be missing is asked for there before it is deleted
// ([SourceConfig].Confirm), since nobody saw it go.
//
// What the replica's store makes of an object counts as that object: a default that the store adds is no difference.
// Every hour or two the resync reports it as one all the same, since the store may accept by now what it left out.
//
// If the source still shows that an object was refused, and a resync finds the object equal, the source gets the result Done.
//
// # Drift
//
// When a replica object changes behind the replica's back, the replica restores what it last applied, if it retained
// that (see [ReplicaConfig]), also while no peer is connected. It tells the source by a ReplicaChanged what it holds
// then; without a retained payload it does so at once. The source sends the object again if that differs.
//
// # The deletion guard
//
// A resync that would delete all that the replica holds, or more than a fifth of it and more than ten objects ([Guard]), is far more
// often an accident than intended: an empty cluster was restored, a selector mistyped. Then nothing is deleted, the [Observer]
// is told, and the deletions wait until an operator confirms them by their token ([Peer.ConfirmDeletions]). Nothing gets
// past the guard: a key is deleted only if the source saw its object go, or if a resync found it and the guard let it
// pass. If a ReplicaChanged names an object that the source does not have, the source requests a resync.
//
// Of an object that was seen to go, or that is going, the source may know that nobody deleted it by itself: it went with its namespace
// ([Collateral]). The guard holds each of these.
//
// The guard is against objects that are gone by accident. Of an object that is still there, and that the peer should not
// hold any more, the source may know that somebody revoked the peer's access ([SourceConfig].AccessRevoked): that is
// deleted whatever else is.
//
// # Limits
//
// Nobody believes a peer. Messages and their payloads, the objects and names that are remembered, and how often they come are
// bounded for each peer (see [Limits]). What is beyond is refused by an Ack, waits, or is left to the next resync. A peer that reaches
// a limit delays nobody but itself. A payload is JSON, whatever is in it, and that is all that this package knows of it.
//
// # What a facet provides
//
// A [Source] or a [Replica], each a view of one cache. This package knows nothing of Kubernetes, of the wire, or of
// which facets there are.
package converge
