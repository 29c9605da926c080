package cache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
)

func entry(path, instance string, size int) *cache.Entry {
	return &cache.Entry{ID: cache.ID{Agent: "east", Path: path}, Instance: instance, Value: make([]byte, size)}
}

func TestLeastRecentlyUsedIsEvicted(t *testing.T) {
	t.Parallel()
	c := cache.New(10_000)
	for _, path := range []string{"a", "b", "c"} {
		c.Put(entry(path, "guestbook", 2500))
	}
	require.NotNil(t, c.Get(cache.ID{Agent: "east", Path: "a"}))
	c.Put(entry("d", "guestbook", 2500))
	require.Nil(t, c.Get(cache.ID{Agent: "east", Path: "b"}))
	require.NotNil(t, c.Get(cache.ID{Agent: "east", Path: "a"}))
	require.Equal(t, 3, c.Len())
	require.LessOrEqual(t, c.Bytes(), int64(10_000))

	c.Put(entry("large", "guestbook", 10_000))
	require.Nil(t, c.Get(cache.ID{Agent: "east", Path: "large"}), "what does not fit is not stored")
	require.Equal(t, 3, c.Len(), "and evicts nothing")
	c.Put(entry("a", "guestbook", 10_000))
	require.Nil(t, c.Get(cache.ID{Agent: "east", Path: "a"}), "nor does an older value stay in its place")
	for _, path := range []string{"c", "d"} {
		c.Remove(cache.ID{Agent: "east", Path: path})
	}
	require.Zero(t, c.Len())
	require.Zero(t, c.Bytes())
}

func TestInvalidateMarksAnApplicationsEntries(t *testing.T) {
	t.Parallel()
	c := cache.New(1 << 20)
	c.Put(entry("tree", "guestbook", 1))
	c.Put(entry("managed", "guestbook", 1))
	c.Put(entry("other", "shop", 1))
	c.Invalidate("west", "guestbook")
	c.Invalidate("east", "guestbook")
	c.Invalidate("east", "unknown")
	for path, want := range map[string]bool{"tree": true, "managed": true, "other": false} {
		require.Equal(t, want, c.Get(cache.ID{Agent: "east", Path: path}).Invalidated, path)
	}
	c.Put(entry("tree", "guestbook", 1))
	require.False(t, c.Get(cache.ID{Agent: "east", Path: "tree"}).Invalidated)
}

func TestRemoveAgentRemovesItsEntries(t *testing.T) {
	t.Parallel()
	c := cache.New(1 << 20)
	c.Put(entry("tree", "guestbook", 1))
	c.Put(entry("other", "shop", 1))
	west := cache.ID{Agent: "west", Path: "tree"}
	c.Put(&cache.Entry{ID: west, Instance: "guestbook"})
	c.RemoveAgent("east")
	require.Equal(t, 1, c.Len())
	require.NotNil(t, c.Get(west))
}
