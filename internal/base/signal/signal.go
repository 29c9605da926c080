// Package signal is how one goroutine tells another that something has changed, without waiting for it and without a queue.
package signal

// Signal tells one goroutine that something has changed: it has a value from when it was given until that goroutine takes it.
// Given again meanwhile it is still one: whoever takes it looks at all that there is.
type Signal chan struct{}

// New returns a signal that was not given.
func New() Signal { return make(Signal, 1) }

// Give gives the signal. It never waits.
func (s Signal) Give() {
	select {
	case s <- struct{}{}:
	default: // it is given already
	}
}
