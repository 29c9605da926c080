package tunnel

import (
	"sync"
	"sync/atomic"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// window is how much an end may have in flight in one direction, in bytes: sent, and not read by the peer yet. A mebibyte
// carries 10 MB/s over a round trip of 100 ms, and 50 MB/s over 20 ms. All connections of an agent share one TCP connection,
// where others wait behind what is in flight: 100 ms on a line of 10 MB/s. A smaller window would be slower at a distance,
// and a larger one make others wait longer and take more memory, since the reader keeps what is in flight.
const window = 1 << 20

// ackAfter is how much an end reads before it acknowledges that, in bytes.
const ackAfter = 32 << 10

// credit is how much more an end may send.
type credit struct {
	granted signal.Signal // there is more credit

	mu         sync.Mutex
	sent, read uint64 // by us, by the peer, in bytes. Guarded by mu
}

func newCredit() *credit { return &credit{granted: signal.New()} }

// available returns how much may be sent now, in bytes. When that is nothing, granted says when to ask again.
func (c *credit) available() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(window-int(c.sent-c.read), 0) //nolint:gosec // a window and a frame at most
}

// spend notes that so many bytes are sent.
func (c *credit) spend(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += uint64(size) //nolint:gosec // not negative
}

// acknowledge takes in how much the peer has read in all, and reports whether that can be.
func (c *credit) acknowledge(read uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if read > c.sent {
		return false
	}
	c.read = max(c.read, read)
	c.granted.Give()
	return true
}

// acks is how much an end has read, in bytes, and how much of that it has acknowledged.
type acks struct {
	read, acked atomic.Uint64
	due         signal.Signal // there is enough to acknowledge
}

func newAcks() *acks { return &acks{due: signal.New()} }

// add notes that so many bytes more are read, or will never be.
func (a *acks) add(n int) {
	if a.read.Add(uint64(n))-a.acked.Load() >= ackAfter { //nolint:gosec // not negative
		a.due.Give()
	}
}

// takeDue returns what to acknowledge, in bytes since the beginning, and counts it as acknowledged. It returns 0 while that
// is not due. It is for one goroutine.
func (a *acks) takeDue() uint64 {
	read := a.read.Load()
	if read-a.acked.Load() < ackAfter {
		return 0
	}
	a.acked.Store(read)
	return read
}
