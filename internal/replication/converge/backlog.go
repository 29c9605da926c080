package converge

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Retries of one key wait from retryFirst to retryLast, doubling, each with up to half of itself taken off at random so
// that what failed together does not return together.
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 30 * time.Second
)

// backlog is a set of keys that need attention. A key is in it once, however often it is added; a key that is being
// worked on is not given out again before it is done, and comes back at once if it was added meanwhile.
type backlog[K comparable] struct {
	wake func() // is called, with mu held, when something may be ready

	mu     sync.Mutex
	items  sparse[K, *item] // guarded by mu, as are all fields below
	ready  []K              // keys to give out, oldest first
	closed bool
}

// item is what is known of one key in a backlog. At most one of ready, busy and timer holds; none while it is parked.
type item struct {
	since    time.Time   // when the work that is not yet done was first asked for
	ready    bool        // waits in backlog.ready
	busy     bool        // was taken and is not done
	again    time.Time   // when it was last added while busy, if it was
	timer    *time.Timer // waits for a retry
	failures int         // retries in a row
}

// newBacklog returns an empty backlog that calls wake, which must not block, when a key may be ready.
func newBacklog[K comparable](wake func()) *backlog[K] {
	return &backlog[K]{wake: wake}
}

// add asks for attention to a key, now. A key that waits for a retry no longer does.
func (b *backlog[K]) add(k K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	it := b.items[k]
	if it == nil {
		it = &item{since: time.Now()}
		b.items.set(k, it)
	}
	switch {
	case it.busy:
		it.again = time.Now()
	case !it.ready:
		b.makeReady(k, it)
	}
}

// take gives out the key that has waited longest. The caller calls done or retry for it later.
func (b *backlog[K]) take() (K, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var none K
	if len(b.ready) == 0 {
		return none, false
	}
	k := b.ready[0]
	b.ready[0] = none
	b.ready = b.ready[1:]
	if len(b.ready) == 0 {
		b.ready = nil // it may have been long
	}
	it := b.items[k]
	it.ready, it.busy = false, true
	if len(b.ready) > 0 {
		b.wake()
	}
	return k, true
}

// lag returns for how long a key has been wanted; zero if it is not.
func (b *backlog[K]) lag(k K) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if it := b.items[k]; it != nil {
		return time.Since(it.since)
	}
	return 0
}

// done ends the work on a key that was taken, and returns for how long it was wanted.
func (b *backlog[K]) done(k K) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.items[k]
	if it == nil || !it.busy {
		return 0
	}
	lag := time.Since(it.since)
	if !it.again.IsZero() && !b.closed {
		*it = item{since: it.again}
		b.makeReady(k, it)
	} else {
		b.items.remove(k)
	}
	return lag
}

// retry ends the work on a key that was taken and asks for it again after a while, which grows with every retry in a
// row; at once, if the key was added meanwhile, since that may be what it waited for. It returns how many those are by now.
func (b *backlog[K]) retry(k K) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.items[k]
	if it == nil || !it.busy {
		return 0
	}
	if b.closed {
		b.items.remove(k)
		return 0
	}
	it.busy = false
	it.failures++
	if !it.again.IsZero() {
		it.again = time.Time{}
		b.makeReady(k, it)
		return it.failures
	}
	it.timer = time.AfterFunc(retryDelay(it.failures), func() { b.add(k) })
	return it.failures
}

// park ends the work on a key that was taken, until it is added; it is not if that was meanwhile.
func (b *backlog[K]) park(k K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.items[k]
	switch {
	case it == nil || !it.busy:
	case b.closed:
		b.items.remove(k)
	default:
		it.busy = false
		if !it.again.IsZero() {
			it.again = time.Time{}
			b.makeReady(k, it)
		}
	}
}

// later ends the work on a key that was taken and asks for it again after a while; at once, if the key was added
// meanwhile. It counts as no failure.
func (b *backlog[K]) later(k K, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.items[k]
	if it == nil || !it.busy || b.closed {
		return
	}
	it.busy = false
	if !it.again.IsZero() {
		it.again = time.Time{}
		b.makeReady(k, it)
		return
	}
	it.timer = time.AfterFunc(wait, func() { b.add(k) })
}

// retryDelay returns how long to wait after so many failures in a row.
func retryDelay(failures int) time.Duration {
	d := retryLast
	if failures < 10 {
		d = min(d, retryFirst<<(failures-1))
	}
	return d - rand.N(d/2) //nolint:gosec // jitter needs no secrecy
}

// close forgets every key. Nothing is given out any more.
func (b *backlog[K]) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for k, it := range b.items {
		if it.timer != nil {
			it.timer.Stop()
		}
		if !it.busy {
			b.items.remove(k)
		}
	}
	b.ready = nil
}

// size returns the number of keys that wait or are being worked on.
func (b *backlog[K]) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items)
}

// oldest returns for how long the key has been wanted that has been the longest; zero if there is none.
func (b *backlog[K]) oldest() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var longest time.Duration
	for _, it := range b.items {
		longest = max(longest, time.Since(it.since))
	}
	return longest
}

// makeReady lets a key be given out. b.mu is held.
func (b *backlog[K]) makeReady(k K, it *item) {
	if it.timer != nil {
		it.timer.Stop()
		it.timer = nil
	}
	it.ready = true
	b.ready = append(b.ready, k)
	b.wake()
}
