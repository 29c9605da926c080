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

// maxUnknownBytes is how much may be remembered of what a peer says it holds and the source does not have, over all facets. More
// is for the next resync: what a peer can make this side remember is bounded.
const maxUnknownBytes = 32 << 20

// unknownOverhead is what remembering a key takes beside its texts.
const unknownOverhead = 150

// Limits are what a peer may make this side do. What is beyond them is refused, or waits, and nothing else does. The zero value
// leaves all to the peer that has a zero value.
type Limits struct {
	// Objects is how many objects of each replica the peer may have, 0 for any number.
	Objects int
	// Changes is how many Puts, Deletes and ReplicaChanged are received in a second, in the long run, 0 for any number. A peer
	// that sends more is read more slowly.
	Changes int
	// Reached, if set, is told now and then that the peer has reached a limit, and which.
	Reached func(limit string)
}

// changesBurst is for how many seconds' worth of changes a peer may come at once: the first sync of ten thousand objects.
const changesBurst = 20

// budget holds a peer to its limits.
type budget struct {
	limits           Limits
	changes, resyncs *rate.Limiter
	memory           *semaphore.Weighted

	mu       sync.Mutex
	reported map[string]time.Time // when Reached was last told of a limit. Guarded by mu
}

// reportAgain is after how long a limit that is still reached is reported again.
const reportAgain = time.Hour

func newBudget(l Limits) *budget {
	b := &budget{
		limits: l, memory: semaphore.NewWeighted(peerMemory), changes: rate.NewLimiter(rate.Inf, 0),
		resyncs: rate.NewLimiter(resyncRate, resyncBurst), reported: make(map[string]time.Time),
	}
	if l.Changes > 0 {
		b.changes = rate.NewLimiter(rate.Limit(l.Changes), changesBurst*l.Changes)
	}
	return b
}

// reached reports that a limit is.
func (b *budget) reached(limit string) {
	b.mu.Lock()
	last, before := b.reported[limit]
	again := !before || time.Since(last) > reportAgain
	if again {
		b.reported[limit] = time.Now()
	}
	b.mu.Unlock()
	if again && b.limits.Reached != nil {
		b.limits.Reached(limit)
	}
}

// await waits until a message may be handled. It blocks who receives, and so the peer.
func (b *budget) await(ctx context.Context, m Message) {
	limiter, limit := b.changes, "changes per second"
	switch m.(type) {
	case Put, Delete, ReplicaChanged:
	case Digest, BucketRequest:
		limiter, limit = b.resyncs, "resyncs per second"
	default:
		return
	}
	if limiter.Allow() {
		return
	}
	b.reached(limit)
	_ = limiter.Wait(ctx) // it fails only at the end of the session, when nothing is handled any more
}

// check returns why a payload is refused, nil if it is not.
func (b *budget) check(payload []byte) error {
	err := jsonsize.Check(payload)
	if err != nil {
		b.reached("the size of an object")
	}
	return err
}

// errFull returns why no more objects are taken.
func (b *budget) errFull(f Facet) error {
	b.reached("objects of " + string(f))
	return fmt.Errorf("the limit of %d objects of %s is reached: delete some, or raise --max-objects-per-agent on the principal", b.limits.Objects, f)
}

// take waits until there is memory to decode a payload. The caller calls release.
func (b *budget) take(ctx context.Context, all *semaphore.Weighted, payload []byte) (release func(), err error) {
	n := jsonsize.Memory(payload)
	if !b.memory.TryAcquire(n) {
		b.reached("memory for decoding")
		if err := b.memory.Acquire(ctx, n); err != nil {
			return nil, fmt.Errorf("wait for memory to decode it: %w", err)
		}
	}
	if err := all.Acquire(ctx, n); err != nil {
		b.memory.Release(n)
		return nil, fmt.Errorf("wait for memory to decode it: %w", err)
	}
	return func() { all.Release(n); b.memory.Release(n) }, nil
}
