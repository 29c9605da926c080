package converge_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

const heartbeat = 10 * time.Second

// beating runs a test on a source that sends heartbeats, and returns the test's end of its session.
func beating(t *testing.T, every time.Duration, test func(t *testing.T, source *memoryStore, end *pipeEnd)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		source := newMemoryStore()
		peer := runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(),
		})
		source.changed = func(k converge.Key) { peer.Changed(facet, k) }
		line := newPipe(1000)
		var session sync.WaitGroup
		session.Go(func() { _ = peer.RunSession(t.Context(), line.left, every) })
		defer session.Wait()
		defer line.cut()
		send(t, line.right, converge.Digest{Facet: facet, Resync: 1})
		synctest.Wait()
		test(t, source, line.left)
	})
}

func TestQuietSessionSendsHeartbeats(t *testing.T) {
	beating(t, heartbeat, func(t *testing.T, _ *memoryStore, end *pipeEnd) {
		pass(2*heartbeat + time.Second)
		synctest.Wait()
		require.Len(t, sentOf[converge.Heartbeat](end), 2)
	})
}

func TestBusySessionSendsNoHeartbeats(t *testing.T) {
	beating(t, heartbeat, func(t *testing.T, source *memoryStore, end *pipeEnd) {
		for i := range 10 {
			source.set(key(i), object("uid", "new"))
			pass(heartbeat - time.Second)
		}
		synctest.Wait()
		require.Empty(t, sentOf[converge.Heartbeat](end))
		require.Len(t, sentOf[converge.Put](end), 10)
	})
}

func TestNoHeartbeatsUnlessAskedFor(t *testing.T) {
	beating(t, 0, func(t *testing.T, _ *memoryStore, end *pipeEnd) {
		pass(24 * time.Hour)
		synctest.Wait()
		require.Empty(t, end.sent)
	})
}
