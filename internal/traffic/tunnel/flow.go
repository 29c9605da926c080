package tunnel

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

const (
	// leastWindow, firstWindow and mostWindow bound how much a conversation may have under way, in bytes, in one direction.
	leastWindow = 128 << 10
	firstWindow = 256 << 10
	mostWindow  = 1 << 20
	// tellAfter is how much is read until the sender is told, in bytes: often enough that the least window does not run dry.
	tellAfter = leastWindow / 4
	// leastRate is what must be possible, in bytes a second, whatever was measured. Further away than firstWindow takes it,
	// which is 5 ms, it is less: what is far is often slow too, and then a large window is a long queue.
	leastRate = 50 << 20
)

// flow decides how much one end of a conversation has under way, which is what it sent and the peer has not read. All
// conversations of an agent share a connection, and whatever is under way the others wait behind; but what is far away is
// slow to say that there is room again. So the window follows the distance: it is what was carried in the time of
// the shortest way there and back, the product that BBR goes by (Cardwell and others, ACM Queue 14(5), 2016), and once more as
// much to find out whether more is.
//
// Unlike BBR it never forgets the shortest way. To measure it again the line would have to be emptied now and then, and a
// connection seldom comes to lead elsewhere: where it does, the least window remains, which is 1.3 MB a second at 100 ms.
type flow struct {
	room signal.Signal // there is room again

	mu         sync.Mutex
	window     int           // Guarded by mu
	sent, read uint64        // by us, by the peer. Guarded by mu
	shortest   time.Duration // way there and back, 0 before the first. Guarded by mu
	way        measurement   // of a way there and back. Guarded by mu
	load       measurement   // the same, begun with a full window. Guarded by mu
}

// measurement is of the time from when something was sent until it was read. The zero value is none.
type measurement struct {
	from, until uint64 // what was read when it began, and what is when it ends
	began       time.Time
}

func (m *measurement) none() bool { return m.until == 0 }

func (m *measurement) over(read uint64) bool { return !m.none() && read >= m.until }

// took returns how long it took. Clocks that do not tell small times apart shall not make anything infinite.
func (m *measurement) took(now time.Time) time.Duration {
	return max(now.Sub(m.began), time.Microsecond)
}

func newFlow() *flow { return &flow{room: signal.New(), window: firstWindow} }

// left returns how much may be sent now, in bytes. When that is nothing, room says when to ask again.
func (f *flow) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.window-f.underWay(), 0)
}

func (f *flow) underWay() int { return int(f.sent - f.read) } //nolint:gosec // a window and a frame at most

// send notes that so many bytes are sent.
func (f *flow) send(size int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size == 0 {
		return
	}
	before := f.underWay()
	f.sent += uint64(size) //nolint:gosec // not negative
	begin := measurement{from: f.read, until: f.sent, began: now}
	if f.way.none() || before < tellAfter { // so little is not told of before more is sent: it may have been long ago
		f.way = begin
	}
	if f.load.none() && f.underWay() >= f.window {
		f.load = begin
	}
}

// acknowledge takes in how much the peer has read in all, and reports whether that can be.
func (f *flow) acknowledge(read uint64, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if read > f.sent {
		return false
	}
	f.read = max(f.read, read)
	if f.way.over(f.read) {
		f.travelled(f.way.took(now))
		f.way = measurement{}
	}
	if f.load.over(f.read) {
		f.travelled(f.load.took(now))
		f.adapt(int(f.read-f.load.from), f.load.took(now)) //nolint:gosec // a window and a frame at most
		f.load = measurement{}
	}
	f.room.Give()
	return true
}

// travelled notes how long a way there and back took. It is called with mu held, and so is adapt.
func (f *flow) travelled(took time.Duration) {
	if f.shortest == 0 || took < f.shortest {
		f.shortest = took
	}
}

// adapt sets the window: so much was read in so much time, from when the window was full.
func (f *flow) adapt(carried int, took time.Duration) {
	inTime := int(float64(carried) * float64(f.shortest) / float64(took))
	least := min(max(int(leastRate*f.shortest.Seconds()), leastWindow), firstWindow)
	window := min(max(2*inTime, least), mostWindow)
	if window < f.window { // a quarter of the way: the reader may have paused, and the processors may have had others to serve
		window = f.window - (f.window-window)/4
	}
	f.window = window
}

// receipts is how much one end has read, in bytes, and how much of that it has told the other end.
type receipts struct {
	read, told atomic.Uint64
	due        signal.Signal // there is something to tell
}

func newReceipts() *receipts { return &receipts{due: signal.New()} }

// add notes that so many bytes more are read, or will never be.
func (r *receipts) add(n int) {
	if r.read.Add(uint64(n))-r.told.Load() >= tellAfter { //nolint:gosec // not negative
		r.due.Give()
	}
}

// next returns what to tell, which counts as told then, and 0 when it is too little. It is for one goroutine.
func (r *receipts) next() uint64 {
	read := r.read.Load()
	if read-r.told.Load() < tellAfter {
		return 0
	}
	r.told.Store(read)
	return read
}
