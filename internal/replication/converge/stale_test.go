package converge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Another source has taken the place of the one that a replica's objects came from. It sends what it has of them, though they are
// equal; what it has not is neither put back as the earlier one wanted it, nor reported over and over.
func TestObjectOfAnotherSourceIsSentAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var p *pair
		var another atomic.Bool
		applied := func(k int) int { return len(p.replica.appliedAt(key(k))) }
		before := 0
		p = equalPair(t, 2, pairOptions{retain: true, stale: func(k converge.Key) bool {
			return another.Load() && len(p.replica.appliedAt(k)) == before
		}})
		p.disconnect()
		p.source.vanish(key(1))
		before = applied(0)
		require.Equal(t, before, applied(1))
		another.Store(true)
		p.replica.remove = func(context.Context, converge.Key) error { return errInvalid }
		p.connect()
		synctest.Wait()
		require.Equal(t, before+1, applied(0))
		require.Equal(t, before, applied(1))
		require.Len(t, p.observer.kept, 1)

		p.replica.set(key(1), object("uid1", "mine"))
		synctest.Wait()
		require.Equal(t, before, applied(1), "it is not put back")
		require.Equal(t, before+1, applied(0), "it is this one's now")
	})
}
