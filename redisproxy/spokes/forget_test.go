package spokes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is in use of an agent when it is deleted ends, and then nothing is kept about it. One of the same name may come later.
func TestDeletedAgentLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, reading := range map[string]bool{"idle": false, "while a value is read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, ample, plain)
			heard := make(subscriber, 100)
			w.spokes.Subscribe(heard, channelHub)
			w.spokes.SubscribePattern(heard, "app|managed-resources|*")
			defer w.spokes.UnsubscribeAll(heard)
			w.setAndWait(treeSpoke, "one")
			require.Equal(t, "one", w.get(treeHub))
			require.Equal(t, 1, w.spokes.Agents())
			require.NotZero(t, w.metric("argocd_redisproxy_cache_entries", ""))
			if reading {
				before := w.gets()
				w.agent.HoldReplies()
				r := w.ask("app|resources-tree|east_guestbook|another")
				w.agent.WaitForCommands(t, func(asked map[string]int) bool { return asked["GET"] > before })
				w.directory.Remove("east")
				w.agent.Disconnect()
				_, failure, err := r.Wait(t.Context())
				require.NoError(t, err)
				require.ErrorContains(t, failure, `agent "east" did not answer`)
				w.agent.Release()
			} else {
				w.directory.Remove("east")
			}
			require.Eventually(t, func() bool {
				return w.spokes.Agents() == 0 && w.metric("argocd_redisproxy_invalidation_streams", "") == 0
			}, testTimeout, time.Millisecond)
			require.Zero(t, w.metric("argocd_redisproxy_cache_bytes", ""))
			require.Zero(t, w.metric("argocd_redisproxy_cache_entries", ""))

			w.set(treeSpoke, "two")
			w.directory.SetOwner("east_guestbook", "east", "guestbook")
			w.arrive()
			require.Equal(t, "two", w.get(treeHub))
		})
	}
}

// A read may begin just when its agent is deleted.
func TestReadOfDeletedAgentLeavesNothing(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	target, ok := w.find(treeHub)
	require.True(t, ok)
	w.directory.Remove("east")
	require.Eventually(t, func() bool { return w.spokes.Agents() == 0 }, testTimeout, time.Millisecond)
	r := w.spokes.StartRead(target)
	_, failure, err := r.Wait(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, failure, `agent "east" did not answer`)
	require.Zero(t, w.spokes.Agents())
}
