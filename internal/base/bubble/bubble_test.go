package bubble_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
)

// With several processors this crashes the race detector within milliseconds.
func TestGoroutinesOfABubbleMayReadExpiredTimersAtTheSameTime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	bubble.Test(t, func(*testing.T) {
		var readers sync.WaitGroup
		for range 50 {
			readers.Go(func() {
				for range 200 {
					select {
					case <-time.NewTimer(0).C:
					default:
					}
				}
			})
		}
		readers.Wait()
		synctest.Wait()
	})
	require.Equal(t, 4, runtime.GOMAXPROCS(0), "the processors that the test was given are back")
}
