package converge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// pausedObserver notes which facets have paused deletions.
type pausedObserver struct {
	Observer
	paused map[Facet]bool
}

func (o pausedObserver) DeletionsPaused(p PausedDeletions) { o.paused[p.Facet] = true }

func (o pausedObserver) DeletionsResumed(f Facet) { delete(o.paused, f) }

// A session may still run when its peer is closed, for an agent that came back in another mode, say. What it pauses nobody would
// resume.
func TestClosedPeerReportsNoPausedDeletions(t *testing.T) {
	seen := pausedObserver{paused: make(map[Facet]bool)}
	p := NewPeer(Options{Observer: seen})
	p.notePaused("application", &PausedDeletions{Facet: "application", Token: "one"})
	require.Len(t, seen.paused, 1)
	p.Close()
	require.Empty(t, seen.paused)
	p.notePaused("application", &PausedDeletions{Facet: "application", Token: "two"})
	require.Empty(t, seen.paused)
}
