package converge_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// What is withheld stays as the peer has it, also in resyncs, and its deletion goes.
func TestWithheldObjectsStayAsTheyAre(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var open atomic.Bool
		p := equalPair(t, 3, pairOptions{withholds: func(k converge.Key) bool { return !open.Load() && k != key(0) }})
		before := p.replica.Held(key(1))
		p.source.set(key(0), object("uid0", "new"))
		p.source.set(key(1), object("uid1", "new"))
		p.source.set("more", object("more", "new"))
		for range 2 {
			synctest.Wait()
			require.Equal(t, p.source.states()[key(0)], p.replica.Held(key(0)))
			require.Equal(t, before, p.replica.Held(key(1)))
			require.Zero(t, p.replica.Held("more"))
			require.Zero(t, p.left.Backlog(facet))
			p.left.Resync(facet)
		}
		p.source.drop(key(2))
		synctest.Wait()
		require.Zero(t, p.replica.Held(key(2)), "somebody deleted it")
		open.Store(true)
		p.left.Changed(facet, key(1))
		p.left.Resync(facet)
		synctest.Wait()
		require.Equal(t, p.source.states(), p.replica.states())
	})
}
