package tunnel

import (
	"sync"
	"time"
)

// deadline is a point in time that can be moved while somebody waits for it. HTTP servers move it several times in each
// request.
type deadline struct {
	mu      sync.Mutex
	at      time.Time     // zero if there is none. Guarded by mu
	timer   *time.Timer   // calls expire; nil before the first deadline in the future. Guarded by mu
	passed  chan struct{} // closed once it has passed; another one after it was moved. Guarded by mu
	stopped bool          // it does not pass any more, unless it is set to the past. Guarded by mu
}

func newDeadline() deadline { return deadline{passed: make(chan struct{})} }

// set moves the deadline; the zero time is never.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Whoever waits keeps waiting on the same channel, unless that has passed already.
	if isClosed(d.passed) {
		d.passed = make(chan struct{})
	}
	d.at = at
	if d.timer != nil {
		d.timer.Stop()
	}
	left := time.Until(at)
	switch {
	case at.IsZero():
	case left <= 0:
		close(d.passed)
	case d.stopped:
	case d.timer == nil:
		d.timer = time.AfterFunc(left, d.expire)
	default:
		d.timer.Reset(left)
	}
}

// stop stops the timer, which would keep the Conn and its inbox in memory until it fires. The stream is over, so nobody
// waits.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
}

// expire closes passed, unless the deadline was moved while this waited for the lock.
func (d *deadline) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || d.at.IsZero() || isClosed(d.passed) {
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left)
		return
	}
	close(d.passed)
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
