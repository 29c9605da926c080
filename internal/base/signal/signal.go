// Package signal wakes a goroutine without waiting for it and without a queue.
package signal

// Signal tells one goroutine that something has changed. It holds a value from Give until that goroutine receives it. Several
// calls of Give before that are one value, so the receiver must look at everything that may have changed.
type Signal chan struct{}

// New returns a signal without a value.
func New() Signal { return make(Signal, 1) }

// Give gives the signal. It never waits.
func (s Signal) Give() {
	select {
	case s <- struct{}{}:
	default: // it has a value already
	}
}
