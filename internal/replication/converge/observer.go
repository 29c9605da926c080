package converge

import "time"

// Observer learns what happens, for metrics, logs and operators. Its methods return quickly and may be called from several
// goroutines.
type Observer interface { //nolint:interfacebloat // one method for each thing that happens
	// Sent is called for each Put and Delete that is sent. lag is the time since the change was first noticed here.
	Sent(m Message, lag time.Duration)
	// Acknowledged is called for each Ack that is received. lag is the time since the change, or the last of several, was
	// first noticed here. It is zero for Retry.
	Acknowledged(a Ack, lag time.Duration)
	// Applied is called when a Put or Delete was applied, or failed to be, with its Ack. lag is the time since it was received,
	// or since its object was first found to need attention.
	Applied(m Message, a Ack, lag time.Duration)
	// Repaired is called when a replica object was restored as it was last applied.
	Repaired(f Facet, k Key, r Result)
	// Removed is called when the source asked for a deletion and the replica object is gone, or the deletion was refused: the
	// source may have no object left on which to show that. It is not called when an object goes that is not retained.
	Removed(f Facet, k Key, r Result)
	// Compared is called when the first resync of a session is over: it is known what the peer holds of a facet, and of which deletions
	// the observer has been told.
	Compared(f Facet)
	// DeletionsPaused is called when a resync would delete too much. Nothing is deleted until an operator confirms.
	DeletionsPaused(b PausedDeletions)
	// DeletionsResumed is called when no deletions are paused any more.
	DeletionsResumed(f Facet)
}
