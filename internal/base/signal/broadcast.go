package signal

import "sync"

// Broadcast tells any number of goroutines that something has changed. Who waits takes a channel from Changed first and looks at what may
// have changed then; so it misses no change between the two. The zero value has had no change. It is safe for concurrent use.
type Broadcast struct {
	mu      sync.Mutex
	changed chan struct{} // nil while nobody has asked since the last change. Guarded by mu
}

// Changed returns a channel that is closed by the next Give. It is the same one until then.
func (b *Broadcast) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// Give tells those who wait. It comes after the change, and never waits.
func (b *Broadcast) Give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}
