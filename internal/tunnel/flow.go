package tunnel

import (
	"sync"
	"time"
)

const (
	// leastWindow, firstWindow and mostWindow bound how much a conversation may have under way, in bytes, in one direction.
	leastWindow = 128 << 10
	firstWindow = 256 << 10
	mostWindow  = 1 << 20
	// tellAfter is how much is read until the sender is told, in bytes: often enough that the least window does not run dry.
	tellAfter = leastWindow / 4
	// evenSo is what must be possible, in bytes a second, at any distance for which firstWindow is enough.
	evenSo = 50 << 20
)

// flow decides how much one end of a conversation has under way, which is what it sent and the peer has not read. All
// conversations of an agent share a connection, and whatever is under way the others wait behind; but what is far away is
// slow to say that there is room again. So the window follows the distance: it is what was carried in the time of
// the shortest way there and back, the product that TCP's BBR goes by, and once more as much to find out whether more is.
type flow struct {
	room chan struct{} // has a value when there is room again. Of capacity one

	mu          sync.Mutex
	window      int           // Guarded by mu
	sent, taken uint64        // by us, by the peer. Guarded by mu
	shortest    time.Duration // way there and back, 0 before the first. Guarded by mu
	way         measurement   // of a way there and back. Guarded by mu
	load        measurement   // the same, begun with a full window. Guarded by mu
}

// measurement is of the time from when something was sent until it was taken. The zero value is none.
type measurement struct {
	from, until uint64 // what was taken when it began, and what is when it ends
	began       time.Time
}

func (m *measurement) none() bool { return m.until == 0 }

func (m *measurement) over(taken uint64) bool { return !m.none() && taken >= m.until }

func newFlow() *flow { return &flow{room: make(chan struct{}, 1), window: firstWindow} }

// left returns how much may be sent now, in bytes. When that is nothing, room says when to ask again.
func (f *flow) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.window-f.underWay(), 0)
}

func (f *flow) underWay() int { return int(f.sent - f.taken) } //nolint:gosec // a window and a frame at most

// send notes that so many bytes are sent.
func (f *flow) send(size int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size == 0 {
		return
	}
	before := f.underWay()
	f.sent += uint64(size) //nolint:gosec // not negative
	begin := measurement{from: f.taken, until: f.sent, began: now}
	if f.way.none() || before < tellAfter { // with so little under way nobody may have to tell of what began it
		f.way = begin
	}
	if f.load.none() && f.underWay() >= f.window {
		f.load = begin
	}
}

// told takes in how much the peer has read in all, and reports whether that can be.
func (f *flow) told(taken uint64, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if taken > f.sent {
		return false
	}
	f.taken = max(f.taken, taken)
	if f.way.over(f.taken) {
		f.travelled(now.Sub(f.way.began))
		f.way = measurement{}
	}
	if f.load.over(f.taken) {
		took := f.travelled(now.Sub(f.load.began))
		f.adapt(int(f.taken-f.load.from), took) //nolint:gosec // a window and a frame at most
		f.load = measurement{}
	}
	select {
	case f.room <- struct{}{}:
	default:
	}
	return true
}

// travelled notes how long a way there and back took, and returns that, which is not nothing. It is called with mu held, and
// so is adapt.
func (f *flow) travelled(took time.Duration) time.Duration {
	took = max(took, time.Microsecond)
	if f.shortest == 0 || took < f.shortest {
		f.shortest = took
	}
	return took
}

// adapt sets the window: so much was taken in so much time, from when the window was full.
func (f *flow) adapt(carried int, took time.Duration) {
	inTime := float64(carried) * float64(f.shortest) / float64(took)
	least := min(max(int(evenSo*f.shortest.Seconds()), leastWindow), firstWindow)
	window := min(max(int(inTime*2), least), mostWindow)
	if window < f.window { // it may be chance
		window = f.window - (f.window-window)/4
	}
	f.window = window
}
