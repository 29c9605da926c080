package converge_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// event is one change of a store, as a watch brings it.
type event struct {
	key      converge.Key
	object   converge.Object // the zero Object if it was deleted
	revision uint64
}

// cache is what one process of several sees of a store: all changes in their order, each as late as it pleases, and its own writes at
// once. It writes on the version that it has seen, and not on a newer one, as one does with an API server.
type cache struct {
	of      *store
	changed func(converge.Key)
	cancel  context.CancelFunc
	done    chan struct{}

	mu        sync.Mutex
	rand      *rand.Rand
	slow      int // how many of a hundred events come seconds late
	objects   map[converge.Key]converge.Object
	revisions map[converge.Key]uint64 // of the newest change of each key that shows. Guarded by mu
	newest    uint64                  // of the changes that show. Guarded by mu
	watched   uint64                  // how far the watch has come: all changes up to that show. Guarded by mu
	moved     chan struct{}           // closed when watched grows. Guarded by mu
}

// newCache lists the store.
func newCache(of *store, seed uint64, changed func(converge.Key)) *cache {
	c := &cache{
		of: of, changed: changed, done: make(chan struct{}), rand: rand.New(rand.NewPCG(seed, 5)),
		revisions: make(map[converge.Key]uint64), moved: make(chan struct{}),
	}
	c.slow = c.rand.IntN(2) * 10
	of.mu.Lock()
	c.objects, c.watched = maps.Clone(of.objects), uint64(len(of.events))
	for _, e := range of.events {
		c.revisions[e.key] = e.revision
	}
	of.mu.Unlock()
	c.newest = c.watched
	return c
}

// start follows the store until the cache is stopped.
func (c *cache) start(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	go c.follow(ctx)
}

func (c *cache) stop() {
	c.cancel()
	<-c.done
}

// follow takes in what the watch brings.
func (c *cache) follow(ctx context.Context) {
	defer close(c.done)
	for {
		e, more := c.of.next(c.watched)
		delay := c.delay()
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
		if e.revision == 0 {
			continue // there is one now
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		if c.take(e) {
			c.changed(e.key)
		}
	}
}

func (c *cache) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rand.IntN(100) < c.slow {
		return time.Duration(c.rand.IntN(3000)) * time.Millisecond
	}
	return time.Duration(c.rand.IntN(20)) * time.Millisecond
}

// take takes in a change, and reports whether it is news.
func (c *cache) take(e event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = e.revision
	close(c.moved)
	c.moved = make(chan struct{})
	return c.show(e)
}

// show makes a change show unless a newer one does, and reports whether it did. c.mu is held.
func (c *cache) show(e event) bool {
	if e.revision <= c.revisions[e.key] {
		return false
	}
	c.revisions[e.key], c.newest = e.revision, max(c.newest, e.revision)
	if e.object.State == (converge.State{}) {
		delete(c.objects, e.key)
	} else {
		c.objects[e.key] = e.object
	}
	return true
}

// reach waits until all changes up to a revision show.
func (c *cache) reach(ctx context.Context, revision uint64) error {
	for {
		c.mu.Lock()
		moved, there := c.moved, c.watched >= revision
		c.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// confirm asks the store for a key, and has the answer show.
func (c *cache) confirm(ctx context.Context, k converge.Key, _ string) (bool, error) {
	c.mu.Lock()
	wait, fails := time.Duration(c.rand.IntN(200))*time.Millisecond, c.rand.IntN(10) == 0
	c.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if fails {
		return false, errNotNow
	}
	e := c.of.lastOf(k)
	c.mu.Lock()
	news := c.show(e)
	c.mu.Unlock()
	if news {
		c.changed(k)
	}
	_, exists := c.Project(k)
	return !exists, nil
}

func (c *cache) revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

func (c *cache) All() iter.Seq2[converge.Key, converge.State] {
	c.mu.Lock()
	defer c.mu.Unlock()
	objects := maps.Clone(c.objects)
	return func(yield func(converge.Key, converge.State) bool) {
		for k, o := range objects {
			if !yield(k, o.State) {
				return
			}
		}
	}
}

func (c *cache) Project(k converge.Key) (converge.Object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[k]
	return o, ok
}

func (c *cache) Held(k converge.Key) converge.State {
	o, _ := c.Project(k)
	return o.State
}

func (c *cache) ReportResult(ctx context.Context, k converge.Key, r converge.Result) error {
	return c.of.ReportResult(ctx, k, r)
}

func (c *cache) HasRefusedCondition(k converge.Key) bool { return c.of.HasRefusedCondition(k) }

// errConflict means that a write was made on a version that is not the newest.
var errConflict = errors.New("the object has been modified")

func (c *cache) Apply(ctx context.Context, k converge.Key, o converge.Object) (converge.State, error) {
	return c.write(k, func(check func() error) (converge.State, error) { return c.of.apply(ctx, k, o, check) })
}

func (c *cache) Remove(ctx context.Context, k converge.Key, uid string) (converge.State, error) {
	if held := c.Held(k); uid != "" && held.UID != uid {
		return held, nil
	}
	return c.write(k, func(check func() error) (converge.State, error) { return c.of.remove(ctx, k, check) })
}

// write writes on the version of a key that shows, and has the answer show.
func (c *cache) write(k converge.Key, do func(check func() error) (converge.State, error)) (converge.State, error) {
	c.mu.Lock()
	seen := c.revisions[k]
	c.mu.Unlock()
	held, err := do(func() error {
		if c.of.revisionOf(k) != seen {
			return errConflict
		}
		return nil
	})
	if err == nil {
		c.mu.Lock()
		c.show(c.of.lastOf(k))
		c.mu.Unlock()
		c.changed(k)
	}
	return held, err
}
