package tunnel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// line is a way between two ends: what is sent arrives, one after the other, as fast as the line is, and the sender learns of
// it when that has come back.
type line struct {
	away  time.Duration // one way
	speed float64       // bytes a second
}

// run has an end send all the time for so long. It returns how much was taken in a second, and for how long, in seconds, what
// is sent in the second half waits at most behind what was sent before.
func (l line) run(f *flow, begin time.Time, length time.Duration) (rate, waits float64) {
	type word struct {
		at   time.Time
		read uint64
	}
	now, free := begin, begin // free is when the line has carried all that was sent
	var coming []word
	before := f.read
	read, known := f.sent, f.read
	for now.Sub(begin) < length {
		for f.left() > 0 {
			size := min(f.left(), maxData)
			f.send(size, now)
			if free.Before(now) {
				free = now
			}
			free = free.Add(time.Duration(float64(size) / l.speed * float64(time.Second)))
			if read += uint64(size); read-known >= tellAfter {
				known = read
				coming = append(coming, word{free.Add(2 * l.away), read})
			}
		}
		if now.Sub(begin) > length/2 {
			waits = max(waits, free.Sub(now).Seconds())
		}
		now = coming[0].at
		f.acknowledge(coming[0].read, now)
		coming = coming[1:]
	}
	return float64(f.read-before) / now.Sub(begin).Seconds(), waits
}

func TestWindowFollowsDistance(t *testing.T) {
	const mega = 1e6
	for name, c := range map[string]struct {
		line   line
		window [2]int  // at the end: not less, not more
		rate   float64 // bytes a second, not less
		waits  float64 // seconds, not more
	}{
		"next door, fast":     {line{100 * time.Microsecond, 200 * mega}, [2]int{leastWindow, 220_000}, 199 * mega, 0.001},
		"a region, fast":      {line{2 * time.Millisecond, 100 * mega}, [2]int{800_000, 950_000}, 99 * mega, 0.006},
		"an ocean, fast":      {line{50 * time.Millisecond, 100 * mega}, [2]int{mostWindow, mostWindow}, 9 * mega, 0.02},
		"an ocean, and usual": {line{50 * time.Millisecond, 4 * mega}, [2]int{800_000, 950_000}, 3.8 * mega, 0.15},
		"an ocean, and slow":  {line{50 * time.Millisecond, 1 * mega}, [2]int{firstWindow, 350_000}, 0.98 * mega, 0.25},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlow()
			rate, waits := c.line.run(f, time.Unix(0, 0), 10*time.Second)
			t.Logf("window %d, %.0f bytes a second, %.4f s in the line", f.window, rate, waits)
			require.GreaterOrEqual(t, f.window, c.window[0])
			require.LessOrEqual(t, f.window, c.window[1])
			require.GreaterOrEqual(t, rate, c.rate)
			require.LessOrEqual(t, waits, c.waits)
		})
	}
}

// What is told late because little was said, as by a terminal that is left alone, leaves nothing behind.
func TestWindowDoesNotFollowSilence(t *testing.T) {
	f := newFlow()
	now := time.Unix(0, 0)
	for sent := uint64(0); sent < 10*tellAfter; {
		f.send(100, now)
		sent += 100
		now = now.Add(time.Minute)
		if sent%tellAfter < 100 {
			require.True(t, f.acknowledge(sent, now))
		}
	}
	require.Equal(t, firstWindow, f.window)

	rate, _ := line{100 * time.Microsecond, 200e6}.run(f, now, time.Second)
	require.Greater(t, rate, 199e6)
	require.Less(t, f.window, firstWindow)
}

// Where a connection comes to lead further away, it is slower than a new one. It goes on.
func TestWindowWhenTheWayGetsLonger(t *testing.T) {
	f := newFlow()
	line{time.Millisecond, 100e6}.run(f, time.Unix(0, 0), 5*time.Second)
	rate, _ := line{50 * time.Millisecond, 100e6}.run(f, time.Unix(5, 0), 10*time.Second)
	require.GreaterOrEqual(t, f.window, leastWindow)
	require.Greater(t, rate, 1e6)
}

func TestNobodyReadsWhatWasNotSent(t *testing.T) {
	f := newFlow()
	f.send(10, time.Unix(0, 0))
	require.True(t, f.acknowledge(10, time.Unix(1, 0)))
	require.False(t, f.acknowledge(11, time.Unix(1, 0)))
	require.True(t, f.acknowledge(5, time.Unix(1, 0)), "which is old, and no harm")
	require.Equal(t, firstWindow, f.left())
}
