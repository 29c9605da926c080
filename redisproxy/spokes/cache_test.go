package spokes_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spoketest"
)

const ample = 64 << 20

func TestAValueCrossesOnceUntilItChanges(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.tell(treeSpoke, "one")
	require.Equal(t, "one", w.get(treeHub))
	before := w.gets()
	for range 20 {
		require.Equal(t, "one", w.get(treeHub))
	}
	require.Equal(t, before, w.gets())
	require.GreaterOrEqual(t, w.metric("argocd_redisproxy_cache_hits_total", "fresh"), 20.0)
	w.tell(treeSpoke, "two")
	require.Equal(t, "two", w.get(treeHub))
	require.Equal(t, before+1, w.gets())
	w.redis.Del(t.Context(), treeSpoke)
	require.Eventually(t, func() bool { return w.get(treeHub) == "" }, patience, time.Millisecond)
	w.redis.FlushAll(t.Context())
	w.set(treeSpoke, "three")
	require.Eventually(t, func() bool { return w.get(treeHub) == "three" }, patience, time.Millisecond)
}

// A value that was read before a change, and arrives after it was told, is not kept as fresh, nor shared with those who ask
// after it.
func TestAChangeOvertakesAValue(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.set(treeSpoke, "old")
	require.Equal(t, "old", w.get("app|resources-tree|east_guestbook|1.8.3.gz"))
	w.set("app|resources-tree|guestbook|1.8.3", "old")
	w.agent.Hold()
	before := w.gets()
	early := w.ask("app|resources-tree|east_guestbook|1.8.3")
	w.agent.Wait(t, func(asked map[string]int) bool { return asked["GET"] == before+1 })
	require.Eventually(t, func() bool { // the feed is over another connection: it is not held
		w.set("app|resources-tree|guestbook|1.8.3", "new")
		late := w.ask("app|resources-tree|east_guestbook|1.8.3")
		_ = late
		return w.gets() > before+1
	}, patience, time.Millisecond, "who asks after the change must not wait for the old value")
	w.agent.Release()
	_, failure, err := early.Wait(t.Context())
	require.NoError(t, failure)
	require.NoError(t, err)
	for range 3 {
		require.Equal(t, "new", w.get("app|resources-tree|east_guestbook|1.8.3"))
	}
}

// Redis announces at once, and tells of changed keys a little later. Who reads on hearing the announcement reads what is new.
func TestAnAnnouncementOvertakesTheChange(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	heard := make(follower, 1)
	w.spokes.Subscribe(heard, newsHub)
	defer w.spokes.Leave(heard)
	w.set(treeSpoke, "0")
	require.Eventually(t, func() bool { return w.get(treeHub) == "0" }, patience, time.Millisecond)
	for i := range 50 {
		value := strings.Repeat("x", i+1)
		pipe := w.redis.Pipeline()
		pipe.Set(t.Context(), treeSpoke, value, 0)
		pipe.Publish(t.Context(), newsSpoke, "")
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		require.Equal(t, newsHub+"=", <-heard)
		require.Equal(t, value, w.get(treeHub))
	}
}

func TestWhileTheAgentIsAwayTheLastValueIsKnown(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.set(treeSpoke, "one")
	require.Equal(t, "one", w.get(treeHub))
	w.leave()
	require.Equal(t, "one", w.get(treeHub))
	require.GreaterOrEqual(t, w.metric("argocd_redisproxy_cache_hits_total", "stale"), 1.0)
	require.Eventually(t, func() bool { return w.metric("argocd_redisproxy_feeds", "") == 0 }, patience, time.Millisecond)
	w.set(treeSpoke, "two")
	require.Equal(t, "one", w.get(treeHub))
	q := w.ask("app|resources-tree|east_guestbook|unknown")
	_, failure, err := q.Wait(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, failure, `agent "east" is not connected since`)
	w.arrive()
	require.Eventually(t, func() bool { return w.get(treeHub) == "two" }, patience, time.Millisecond, "everything is asked for again")
	require.Eventually(t, func() bool { return w.metric("argocd_redisproxy_feeds", "") == 1 }, patience, time.Millisecond)
	require.Equal(t, "two", w.get(treeHub)) // which the feed may tell of from now on
	before := w.gets()
	require.Equal(t, "two", w.get(treeHub))
	require.Equal(t, before, w.gets())
}

// A value that has changed is still better than none when the agent goes.
func TestAnOutdatedValueIsBetterThanNone(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.set(treeSpoke, "one")
	require.Equal(t, "one", w.get(treeHub))
	w.agent.Hold()
	w.set(treeSpoke, "two")
	q := w.ask(treeHub)
	w.leave()
	value, failure, err := q.Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, failure)
	require.Contains(t, string(value), "one")
}

func TestWithoutTrackingNothingIsFresh(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, func(a *spoketest.Agent) { a.Untracked = true })
	for i := range 5 {
		value := strings.Repeat("x", i+1)
		w.set(treeSpoke, value)
		require.Equal(t, value, w.get(treeHub))
	}
	require.Zero(t, w.metric("argocd_redisproxy_cache_hits_total", "fresh"))
	w.leave()
	require.Equal(t, "xxxxx", w.get(treeHub))
}

func TestManyWhoAskAtOnceAreAnsweredByOneAnswer(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.tell(treeSpoke, "one")
	before := w.gets()
	w.agent.Hold()
	var all sync.WaitGroup
	for range 50 {
		q := w.ask(treeHub)
		all.Go(func() {
			value, failure, err := q.Wait(t.Context())
			require.NoError(t, failure)
			require.NoError(t, err)
			require.Equal(t, "$3\r\none\r\n", string(value))
		})
	}
	w.agent.Wait(t, func(asked map[string]int) bool { return asked["GET"] == before+1 })
	w.agent.Release()
	all.Wait()
	require.Equal(t, before+1, w.gets())
}

func TestTheCacheHoldsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	w := begin(t, 1<<20, plain)
	value := strings.Repeat("x", 100_000)
	for i := range 30 {
		version := strings.Repeat("v", i+1)
		w.set("app|resources-tree|guestbook|"+version, value)
		require.Equal(t, value, w.get("app|resources-tree|east_guestbook|"+version))
		require.LessOrEqual(t, w.metric("argocd_redisproxy_cache_bytes", ""), float64(1<<20))
	}
	require.Greater(t, w.metric("argocd_redisproxy_cache_bytes", ""), float64(1<<19))
	w.set("app|resources-tree|guestbook|large", strings.Repeat("x", 2<<20))
	require.Len(t, w.get("app|resources-tree|east_guestbook|large"), 2<<20)
	require.Greater(t, w.metric("argocd_redisproxy_cache_bytes", ""), float64(1<<19), "what does not fit drives nothing out")
}
