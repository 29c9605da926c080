package converge_test

import (
	"context"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// pausing returns an answer that takes its time.
func pausing(d time.Duration) func(context.Context, converge.Key) error {
	return func(ctx context.Context, _ converge.Key) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// failing returns an answer to applies that is an error for some keys, and none for others.
func failing(err error, keys ...converge.Key) func(context.Context, converge.Key, converge.Object) error {
	bad := make(map[converge.Key]bool)
	for _, k := range keys {
		bad[k] = true
	}
	return func(_ context.Context, k converge.Key, _ converge.Object) error {
		if bad[k] {
			return err
		}
		return nil
	}
}

// slowReplica is a replica whose Held takes a while when slow is set.
type slowReplica struct {
	*memoryStore
	slow atomic.Bool
}

func (r *slowReplica) Held(k converge.Key) converge.State {
	held := r.memoryStore.Held(k)
	if r.slow.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	return held
}

// pass lets time pass, and all that happens meanwhile come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
