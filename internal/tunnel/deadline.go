package tunnel

import (
	"sync"
	"time"
)

// deadline is a point in time that can be moved while somebody waits for it.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer   // nil if there is no deadline, or if it has passed
	passed chan struct{} // closed once it has passed; another one after it was moved. Guarded by mu
}

func newDeadline() deadline { return deadline{passed: make(chan struct{})} }

// set moves the deadline; the zero time is never.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	// Whoever waits keeps waiting on the same channel, unless that has passed already.
	if isClosed(d.passed) {
		d.passed = make(chan struct{})
	}
	if at.IsZero() {
		return
	}
	passed := d.passed
	left := time.Until(at)
	if left <= 0 {
		close(passed)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // it was not moved while this waited for the lock
			close(passed)
			d.timer = nil
		}
	})
	d.timer = timer
}

// wait returns a channel that is closed when the deadline has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
