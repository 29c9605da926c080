package spokes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spoketest"
)

const ample = 64 << 20

func TestValueIsReadOnceUntilInvalidated(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.setAndWait(treeSpoke, "one")
	require.Equal(t, "one", w.get(treeHub))
	before := w.gets()
	for range 20 {
		require.Equal(t, "one", w.get(treeHub))
	}
	require.Equal(t, before, w.gets())
	require.GreaterOrEqual(t, w.metric("argocd_redisproxy_cache_hits_total", "fresh"), 20.0)
	w.setAndWait(treeSpoke, "two")
	require.Equal(t, "two", w.get(treeHub))
	require.Equal(t, before+1, w.gets())
	w.redis.Del(t.Context(), treeSpoke)
	require.Eventually(t, func() bool { return w.get(treeHub) == "" }, testTimeout, time.Millisecond)
	w.redis.FlushAll(t.Context())
	w.set(treeSpoke, "three")
	require.Eventually(t, func() bool { return w.get(treeHub) == "three" }, testTimeout, time.Millisecond)
}

// A value that was read before a change, and arrives after the invalidation, is not cached as fresh, nor shared with later reads.
func TestValueReadBeforeInvalidationIsNotFresh(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.set(treeSpoke, "old")
	require.Equal(t, "old", w.get("app|resources-tree|east_guestbook|1.8.3.gz"))
	w.set("app|resources-tree|guestbook|1.8.3", "old")
	w.agent.HoldReplies()
	before := w.gets()
	early := w.ask("app|resources-tree|east_guestbook|1.8.3")
	w.agent.WaitForCommands(t, func(asked map[string]int) bool { return asked["GET"] == before+1 })
	require.Eventually(t, func() bool { // invalidations come over another connection, which is not held
		w.set("app|resources-tree|guestbook|1.8.3", "new")
		late := w.ask("app|resources-tree|east_guestbook|1.8.3")
		_ = late
		return w.gets() > before+1
	}, testTimeout, time.Millisecond, "a read after the change must not wait for the old value")
	w.agent.Release()
	_, failure, err := early.Wait(t.Context())
	require.NoError(t, failure)
	require.NoError(t, err)
	for range 3 {
		require.Equal(t, "new", w.get("app|resources-tree|east_guestbook|1.8.3"))
	}
}

// Redis delivers a message at once, and invalidations a little later. Who reads on the message reads the new value.
func TestReadAfterMessageReturnsNewValue(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	heard := make(subscriber, 1)
	w.spokes.Subscribe(heard, channelHub)
	defer w.spokes.UnsubscribeAll(heard)
	w.set(treeSpoke, "0")
	require.Eventually(t, func() bool { return w.get(treeHub) == "0" }, testTimeout, time.Millisecond)
	for i := range 50 {
		value := strings.Repeat("x", i+1)
		pipe := w.redis.Pipeline()
		pipe.Set(t.Context(), treeSpoke, value, 0)
		pipe.Publish(t.Context(), channelSpoke, "")
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		require.Equal(t, channelHub+"=", <-heard)
		require.Equal(t, value, w.get(treeHub))
	}
}

func TestLastValueIsServedWhileAgentIsDisconnected(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.set(treeSpoke, "one")
	require.Equal(t, "one", w.get(treeHub))
	w.leave()
	require.Equal(t, "one", w.get(treeHub))
	require.GreaterOrEqual(t, w.metric("argocd_redisproxy_cache_hits_total", "stale"), 1.0)
	require.Eventually(t, func() bool { return w.metric("argocd_redisproxy_invalidation_streams", "") == 0 }, testTimeout, time.Millisecond)
	w.set(treeSpoke, "two")
	require.Equal(t, "one", w.get(treeHub))
	r := w.ask("app|resources-tree|east_guestbook|unknown")
	_, failure, err := r.Wait(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, failure, `agent "east" is not connected since`)
	w.arrive()
	require.Eventually(t, func() bool { return w.get(treeHub) == "two" }, testTimeout, time.Millisecond, "everything is read again")
	require.Eventually(t, func() bool { return w.metric("argocd_redisproxy_invalidation_streams", "") == 1 }, testTimeout, time.Millisecond)
	require.Equal(t, "two", w.get(treeHub)) // whose changes the stream reports from now on
	before := w.gets()
	require.Equal(t, "two", w.get(treeHub))
	require.Equal(t, before, w.gets())
}

// A value that has changed is still better than none when the agent goes.
func TestInvalidatedValueIsServedWhenAgentDisconnects(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.set(treeSpoke, "one")
	require.Equal(t, "one", w.get(treeHub))
	w.agent.HoldReplies()
	w.set(treeSpoke, "two")
	r := w.ask(treeHub)
	w.leave()
	value, failure, err := r.Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, failure)
	require.Contains(t, string(value), "one")
}

func TestNothingIsFreshWithoutClientTracking(t *testing.T) {
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

func TestConcurrentReadsShareOneRequest(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.setAndWait(treeSpoke, "one")
	before := w.gets()
	w.agent.HoldReplies()
	var all errgroup.Group
	for range 50 {
		r := w.ask(treeHub)
		all.Go(func() error {
			value, failure, err := r.Wait(t.Context())
			if string(value) != "$3\r\none\r\n" {
				return fmt.Errorf("read %q: %w", value, errors.Join(failure, err))
			}
			return nil
		})
	}
	w.agent.WaitForCommands(t, func(asked map[string]int) bool { return asked["GET"] == before+1 })
	w.agent.Release()
	require.NoError(t, all.Wait())
	require.Equal(t, before+1, w.gets())
}

func TestCacheSizeLimit(t *testing.T) {
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
