package tunnel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
)

// passes says whether a deadline passes within a time.
func passes(d *deadline, within time.Duration) bool {
	select {
	case <-d.wait():
		return true
	case <-time.After(within):
		return false
	}
}

func TestDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDeadline()
		require.False(t, passes(&d, time.Hour))

		d.set(time.Now().Add(time.Minute))
		require.False(t, passes(&d, 59*time.Second))
		require.True(t, passes(&d, 2*time.Second))
		require.True(t, isClosed(d.wait()), "it stays passed")

		d.set(time.Now().Add(time.Minute))
		waiting := d.wait()
		d.set(time.Now().Add(time.Hour))
		require.False(t, passes(&d, 59*time.Minute))
		d.set(time.Now().Add(time.Second))
		<-waiting // also for who waited before it was moved

		d.set(time.Now().Add(-time.Second))
		require.True(t, isClosed(d.wait()))
		d.set(time.Now().Add(time.Second))
		d.set(time.Time{})
		require.False(t, passes(&d, time.Hour))
	})
}

// A deadline that is moved while its timer fires does not pass early.
func TestDeadlineMovedWhileItsTimerFires(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDeadline()
		for _, to := range []time.Time{{}, time.Now().Add(time.Minute)} {
			d.set(to)
			d.expire() // as of a timer that waited for the lock
			require.False(t, passes(&d, time.Second))
		}
		require.True(t, passes(&d, time.Minute))
	})
}

func TestDeadlineStops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDeadline()
		d.set(time.Now().Add(time.Minute))
		d.stop()
		require.False(t, passes(&d, time.Hour))
		d.set(time.Now().Add(time.Minute))
		require.False(t, d.timer.Stop(), "it runs again")
		d.set(time.Now().Add(-time.Minute))
		require.True(t, isClosed(d.wait()))
	})
}
