package converge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
)

// What payloads may take while they are decoded and applied, those of one peer and those of all. One at the limits of jsonsize
// fits; of usual ones all workers have room.
const (
	peerMemory  = 48 << 20
	totalMemory = 256 << 20
)

// Resyncs cost a look at all objects. An honest peer begins one of each facet every few minutes, or seconds.
const (
	resyncRate  = 20 // per second
	resyncBurst = 200
)

// A deletion that only a resync found costs a question to the source's store.
const (
	confirmRate  = 100 // per second
	confirmBurst = 1000
)

// maxUnknownBytes is how much may be remembered of what a peer says it holds and the source does not have, over all facets. More
// is for the next resync: what a peer can make this side remember is bounded.
const maxUnknownBytes = 32 << 20

// unknownOverhead is how many bytes it takes to remember a key, besides those of its texts.
const unknownOverhead = 150

// Limits are what a peer may make this side do. What is beyond them is refused, or waits, and nothing else does. The zero value has no
// limit of objects and changes. Memory, and how often resyncs begin, are bounded all the same.
type Limits struct {
	// Objects is how many objects of each replica the peer may have, 0 for any number.
	Objects int
	// Changes is how many Puts, Deletes and ReplicaChanged are received in a second, in the long run, 0 for any number. A peer
	// that sends more is read more slowly.
	Changes int
	// Reached, if set, is told now and then that the peer has reached a limit, which, and which setting that is, empty if none.
	Reached func(limit, setting string)
}

// changesBurst is for how many seconds' worth of changes a peer may come at once: the first sync of ten thousand objects.
const changesBurst = 20

// Budget holds a peer to its limits. It is of use beyond a Peer: whoever makes a new one of somebody who was there before gives that
// the same Budget, so that nobody gets more by coming again.
type Budget struct {
	limits                     Limits
	changes, resyncs, confirms *rate.Limiter

	mu       sync.Mutex
	memory   int64                // that payloads take. Guarded by mu
	waiting  []func()             // are called when some of that is released. Guarded by mu
	reported map[string]time.Time // when Reached was last told of a limit. Guarded by mu
}

// reportAgain is after how long a limit that is still reached is reported again.
const reportAgain = time.Hour

// NewBudget returns a budget of which nothing is used.
func NewBudget(l Limits) *Budget {
	b := &Budget{
		limits: l, changes: rate.NewLimiter(rate.Inf, 0),
		resyncs: rate.NewLimiter(resyncRate, resyncBurst), confirms: rate.NewLimiter(confirmRate, confirmBurst),
		reported: make(map[string]time.Time),
	}
	if l.Changes > 0 {
		b.changes = rate.NewLimiter(rate.Limit(l.Changes), changesBurst*l.Changes)
	}
	return b
}

// Unused reports whether a budget is as good as a new one: it is not worth remembering.
func (b *Budget) Unused() bool {
	if b.changes.Limit() != rate.Inf && b.changes.Tokens() < float64(b.changes.Burst()) || b.resyncs.Tokens() < resyncBurst || b.confirms.Tokens() < confirmBurst {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory > 0 {
		return false
	}
	for _, last := range b.reported {
		if time.Since(last) <= reportAgain {
			return false
		}
	}
	return true
}

// Reached reports that a limit is, and by which setting it is set, empty if by none. What is reported again soon is dropped.
func (b *Budget) Reached(limit, setting string) {
	b.mu.Lock()
	last, before := b.reported[limit]
	again := !before || time.Since(last) > reportAgain
	if again {
		b.reported[limit] = time.Now()
	}
	b.mu.Unlock()
	if again && b.limits.Reached != nil {
		b.limits.Reached(limit, setting)
	}
}

// await waits until a message may be handled. It blocks who receives, and so the peer.
func (b *Budget) await(ctx context.Context, m Message) {
	limiter, limit, setting := b.changes, "changes per second", "--agent-changes-per-second"
	switch m.(type) {
	case Put, Delete, ReplicaChanged:
	case Digest, BucketRequest:
		limiter, limit, setting = b.resyncs, "resyncs per second", ""
	default:
		return
	}
	if limiter.Allow() {
		return
	}
	b.Reached(limit, setting)
	_ = limiter.Wait(ctx) // it fails only at the end of the session, when nothing is handled any more
}

// untilConfirm counts a question to the source's store, or returns how long to wait before the next.
func (b *Budget) untilConfirm() time.Duration {
	r := b.confirms.Reserve()
	wait := r.Delay()
	if wait > 0 {
		r.Cancel()
		b.Reached("deletions to confirm per second", "")
	}
	return wait
}

// check returns why a payload is refused, nil if it is not.
func (b *Budget) check(payload []byte) error {
	err := jsonsize.Check(payload)
	if err != nil {
		b.Reached("the size of an object", "")
	}
	return err
}

// errFull returns why no more objects are taken.
func (b *Budget) errFull(f Facet) error {
	b.Reached("objects of "+string(f), "--max-objects-per-agent")
	return fmt.Errorf("the limit of %d objects of %s is reached: delete some, or raise --max-objects-per-agent on the principal", b.limits.Objects, f)
}

// take takes so much memory, to decode a payload. The caller calls release. While the peer's other payloads have all that is the peer's,
// release is nil, and again is called once some of theirs is released: who waited here would keep a worker from other peers. For the
// memory of all it waits.
func (b *Budget) take(ctx context.Context, all *semaphore.Weighted, n int64, again func()) (release func(), err error) {
	if !b.takeOwn(n, again) {
		b.Reached("memory for decoding", "")
		return nil, nil
	}
	if err := all.Acquire(ctx, n); err != nil {
		b.release(n)
		return nil, fmt.Errorf("wait for memory to decode it: %w", err)
	}
	return func() { all.Release(n); b.release(n) }, nil
}

// takeOwn takes of the peer's own memory, or has again called when some of it is released.
func (b *Budget) takeOwn(n int64, again func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory+n > peerMemory {
		b.waiting = append(b.waiting, again)
		return false
	}
	b.memory += n
	return true
}

func (b *Budget) release(n int64) {
	b.mu.Lock()
	b.memory -= n
	waiting := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	for _, again := range waiting {
		again()
	}
}
