package converge

import "time"

// Observer is told what happens, for metrics, logs and people. Its methods return quickly and may be called from several
// goroutines.
type Observer interface {
	// Acknowledged says that the peer answered a message, and how long after the change, or after the last of several,
	// was first noticed here. The lag is zero unless the answer ends the matter.
	Acknowledged(f Facet, c Code, lag time.Duration)
	// Repaired says that a replica's object was put back as it was last applied.
	Repaired(f Facet, k Key, r Result)
	// Removed says that a replica's object was removed, or was not there, because the source wants it gone, or was refused to be:
	// the source may have nothing left to tell people by. That something is gone which is not retained it is not told.
	Removed(f Facet, k Key, r Result)
	// Braked says that a comparison would delete too much; nothing is deleted until the brake's word is given.
	Braked(b Brake)
	// Released says that there are no deletions held back any more.
	Released(f Facet)
}
