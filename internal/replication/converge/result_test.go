package converge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

func TestReportThatFailsIsRetried(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		var at []time.Time
		p.source.reportResult = func(_ context.Context, k converge.Key, _ converge.Result) error {
			if k == key(1) {
				at = append(at, time.Now())
			}
			if k == key(1) && len(at) < 15 {
				return errNotNow
			}
			return nil
		}
		p.source.set(key(1), object("uid1", "newer"))
		p.source.set(key(2), object("uid2", "newer"))
		synctest.Wait()
		require.Len(t, p.source.resultsOf(key(2)), 1, "others do not wait")
		require.Zero(t, p.left.Backlog(facet), "what the peer holds is known all the same")
		pass(time.Hour)
		require.Len(t, at, 15, "until it works, and not again")
		requireBackoff(t, at, 100*time.Millisecond, 30*time.Second)
	})
}

// The newest answer is what is reported. An older one that failed to be reported is not reported after it.
func TestNewestResultIsReported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		works := false
		p.source.reportResult = func(context.Context, converge.Key, converge.Result) error {
			if works {
				return nil
			}
			return errNotNow
		}
		p.replica.apply = failing(errInvalid, key(1))
		p.source.set(key(1), object("uid1", "bad"))
		pass(5 * time.Second)
		p.replica.heal()
		p.source.set(key(1), object("uid1", "good"))
		synctest.Wait()
		p.source.mu.Lock()
		works, p.source.results = true, map[converge.Key][]converge.Result{}
		p.source.mu.Unlock()
		pass(time.Hour)
		require.Equal(t, []converge.Result{{Code: converge.Done}}, p.source.resultsOf(key(1)))
	})
}

// For one key at a time, however fast answers come.
func TestOneReportAtATimePerKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		running := 0
		p.source.reportResult = func(ctx context.Context, k converge.Key, _ converge.Result) error {
			running++
			require.Equal(t, 1, running)
			defer func() { running-- }()
			return pausing(time.Second)(ctx, k)
		}
		for _, v := range []string{"a", "b", "c", "d"} {
			p.source.set(key(1), object("uid1", v))
			pass(100 * time.Millisecond)
		}
		pass(time.Minute)
		require.Len(t, p.source.resultsOf(key(1)), 2, "the first, and the newest after it")
	})
}

// What failed to be reported in one session is not reported in the next, which has answers of its own.
func TestReportingEndsWithTheSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.source.reportResult = func(context.Context, converge.Key, converge.Result) error { return errNotNow }
		p.source.set(key(1), object("uid1", "newer"))
		pass(time.Minute)
		p.disconnect()
		n := len(p.source.resultsOf(key(1)))
		pass(time.Hour)
		require.Len(t, p.source.resultsOf(key(1)), n)
		p.connect()
		p.requireEqual()
		pass(time.Hour)
		require.Len(t, p.source.resultsOf(key(1)), n)
	})
}

// Also if the newer answer comes while the older one is being reported.
func TestNewestResultIsReportedLast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		slow, calls := pausing(time.Second), 0
		p.source.reportResult = func(ctx context.Context, k converge.Key, _ converge.Result) error {
			if calls++; calls > 1 {
				return nil
			}
			_ = slow(ctx, k)
			return errNotNow
		}
		p.replica.apply = failing(errInvalid, key(1))
		p.source.set(key(1), object("uid1", "bad"))
		synctest.Wait()
		p.replica.heal()
		p.source.set(key(1), object("uid1", "good"))
		pass(time.Hour)
		results := p.source.resultsOf(key(1))
		require.Len(t, results, 2)
		require.Equal(t, converge.Done, results[1].Code)
	})
}
