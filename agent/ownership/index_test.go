package ownership_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
)

const (
	waitFor = 2 * time.Minute
	tick    = 5 * time.Millisecond
)

func lookup(tb testing.TB, index *ownership.Index, o ownership.Object) ownership.Owner {
	tb.Helper()
	owner, err := index.Lookup(tb.Context(), o)
	require.NoError(tb, err)
	return owner
}

func TestLookup(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	s.put(t, "guestbook", guestbook(2))
	s.put(t, "team_other", tree(node("/ConfigMap/b/settings/settings-uid")))
	index := newIndex(t, s, api)
	runs(t, index)

	root, child, none := ownership.Owner{Application: "guestbook", Root: true}, ownership.Owner{Application: "guestbook"}, ownership.Owner{}
	for text, want := range map[string]ownership.Owner{
		"apps/deployments/a/web": root, "apps/replicasets/a/web-1": child, "/pods/a/web-1-1": child,
		"rbac.authorization.k8s.io/clusterroles//web": root,
		"/configmaps/b/settings":                      {Application: "team_other", Root: true},
		"apps/deployments/b/web":                      none, "apps/deployments//web": none, "apps/deployments/a/other": none, "/deployments/a/web": none,
		"rbac.authorization.k8s.io/clusterroles/a/web": none,
		"/pods/a/orphan": none, "/unknowns/a/web": none,
	} {
		require.Equal(t, want, lookup(t, index, object(text)), text)
	}
	for uid, want := range map[string]ownership.Owner{"web-uid": root, "pod-1-uid": child, "orphan-uid": none, "other": none} {
		require.Equal(t, want, lookup(t, index, ownership.Object{UID: uid}), uid)
	}
	deployment := ownership.Object{Group: "apps", Kind: "Deployment", Namespace: "a", Name: "web", UID: "web-uid"}
	require.Equal(t, root, lookup(t, index, deployment))
	deployment.UID = "pod-1-uid" // of the same application: that another object has it is for the garbage collector to see
	require.Equal(t, root, lookup(t, index, deployment))
	deployment.UID = "settings-uid"
	require.Equal(t, none, lookup(t, index, deployment))
	require.Equal(t, child, lookup(t, index, ownership.Object{AnyGroup: true, Kind: "Pod", Namespace: "a", Name: "web-1-0"}))
	require.Equal(t, none, lookup(t, index, ownership.Object{AnyGroup: true, Kind: "Pod", Namespace: "b", Name: "web-1-0"}))
	require.LessOrEqual(t, s.gets.Load(), int64(4), "each tree is read once, and once more if the subscription came later")
}

func TestChangedTreeIsReadAgainByTheNextLookup(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	for i := range 20 {
		s.put(t, fmt.Sprint("app-", i), tree(node(fmt.Sprintf("/ConfigMap/b/cm-%d/", i))))
	}
	s.put(t, "guestbook", guestbook(1))
	index := newIndex(t, s, api)
	runs(t, index)
	require.Equal(t, "guestbook", lookup(t, index, object("/pods/a/web-1-0")).Application)
	before := s.gets.Load()
	require.Equal(t, "guestbook", lookup(t, index, object("/pods/a/web-1-0")).Application)
	require.Equal(t, before, s.gets.Load(), "nothing has changed")

	// A pod that was just made is found at once, by reading the one tree that has changed.
	s.write(t, "guestbook", guestbook(2))
	require.Eventually(t, func() bool { return lookup(t, index, object("/pods/a/web-1-1")).Application == "guestbook" }, waitFor, tick)
	require.Equal(t, before+1, s.gets.Load())

	// And one that is gone is not believed in, though it was in the index.
	s.write(t, "guestbook", guestbook(0))
	require.Eventually(t, func() bool { return lookup(t, index, object("/pods/a/web-1-1")).Application == "" }, waitFor, tick)
	require.Equal(t, "guestbook", lookup(t, index, object("apps/deployments/a/web")).Application)
	require.Equal(t, before+2, s.gets.Load())

	// An application that is deleted, and one that is new.
	s.write(t, "guestbook", nil)
	require.Eventually(t, func() bool { return lookup(t, index, object("apps/deployments/a/web")).Application == "" }, waitFor, tick)
	s.write(t, "new", guestbook(0))
	require.Eventually(t, func() bool { return lookup(t, index, object("apps/deployments/a/web")).Application == "new" }, waitFor, tick)
}

func TestObjectSharedByTwoApplications(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	s.put(t, "one", tree(node("/ConfigMap/b/shared/u")))
	s.put(t, "two", tree(node("/ConfigMap/b/shared/u"), node("/ConfigMap/b/shared/u")))
	s.put(t, "three", tree(node("/ConfigMap/b/shared/u"), node("/ConfigMap/b/own/")))
	index := newIndex(t, s, api)
	runs(t, index)
	shared := object("/configmaps/b/shared")
	left := map[string]bool{"one": true, "two": true, "three": true}
	for len(left) > 0 {
		name := lookup(t, index, shared).Application
		require.True(t, left[name], name)
		delete(left, name)
		s.write(t, name, tree())
		require.Eventually(t, func() bool { return lookup(t, index, shared).Application != name }, waitFor, tick)
	}
	require.Empty(t, lookup(t, index, shared).Application)
	require.Empty(t, lookup(t, index, ownership.Object{UID: "u"}).Application)
}

func TestKeyFormatOfArgoCDIsDetected(t *testing.T) {
	part := func(shards int, nodes ...map[string]any) map[string]any {
		p := tree(nodes...)
		p["shardsCount"] = shards
		return p
	}
	plain := func(v any) []byte {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return text
	}
	parent := "apps/ReplicaSet/a/web-1/u"
	for name, c := range map[string]struct {
		keys    map[string][]byte
		options func(*ownership.Options)
	}{
		"plain":           {keys: map[string][]byte{"app|resources-tree|g|1.8.3": plain(guestbook(1))}},
		"another version": {keys: map[string][]byte{"app|resources-tree|g|2.0.0.gz": zip(t, guestbook(1))}},
		"an old version besides": {keys: map[string][]byte{
			"app|resources-tree|g|1.8.3.gz": zip(t, guestbook(1)), "app|resources-tree|g|1.8.2.gz": zip(t, tree()), "app|resources-tree|h|1.8.2.gz": zip(t, tree()),
		}},
		"a prefix": {
			keys:    map[string][]byte{"x[*]?app|resources-tree|g|1.8.3.gz": zip(t, guestbook(1)), "xapp|resources-tree|h|1.8.3.gz": zip(t, tree())},
			options: func(o *ownership.Options) { o.KeyPrefix = "x[*]?" },
		},
		"parts": {keys: map[string][]byte{
			"app|resources-tree|g|1.8.3.gz":   zip(t, part(3, node("/ConfigMap/a/c/"))),
			"app|resources-tree|g|1|1.8.3.gz": zip(t, part(0, node("/Pod/a/web-1-0/p", parent))),
			"app|resources-tree|g|2|1.8.3.gz": zip(t, part(0, node(parent))),
		}},
		"a part is missing": {keys: map[string][]byte{
			"app|resources-tree|g|1.8.3.gz":   zip(t, part(3, node(parent))),
			"app|resources-tree|g|1|1.8.3.gz": zip(t, part(0, node("/Pod/a/web-1-0/p", parent))),
		}},
		"others cannot be read": {keys: map[string][]byte{
			"app|resources-tree|g|1.8.3.gz": zip(t, guestbook(1)), "app|resources-tree|h|1.8.3.gz": []byte("no gzip"),
			"app|resources-tree|i|1.8.3.gz": zip(t, "text"), "app|resources-tree|j|1.8.3.gz": zip(t, part(1<<30)), "app|resources-tree|": nil,
			"app|resources-tree|k|1.8.3.gz": zip(t, guestbook(3))[:100], "app|resources-tree||1.8.3.gz": zip(t, guestbook(3)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, api := newStore(t), newAPIServer(t)
			for key, value := range c.keys {
				require.NoError(t, s.Set(t.Context(), key, value, 0).Err())
			}
			var index *ownership.Index
			if c.options != nil {
				index = newIndex(t, s, api, c.options)
			} else {
				index = newIndex(t, s, api)
			}
			runs(t, index)
			require.Equal(t, ownership.Owner{Application: "g"}, lookup(t, index, object("/pods/a/web-1-0")))
		})
	}
}

// A few compressed bytes may inflate to many. The limit applies to all shards of a tree together.
func TestTooLargeTreeIsNotRead(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	spacious := func(text string) []byte {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(append(bytes.Repeat([]byte(" "), 65<<10), text...))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return packed.Bytes()
	}
	for shard, value := range map[string][]byte{
		"": spacious(`{"shardsCount":3}`), "|1": spacious(`{}`), "|2": zip(t, tree(node("/Pod/a/web-1-1/q"))),
	} {
		require.NoError(t, s.Set(t.Context(), "app|resources-tree|g"+shard+"|1.8.3.gz", value, 0).Err())
	}
	var log logtest.Log
	index := newIndex(t, s, api, func(o *ownership.Options) {
		o.MaxTree, o.Logger = 128<<10, slog.New(slog.NewTextHandler(&log, nil))
	})
	runs(t, index)
	require.Empty(t, lookup(t, index, object("/pods/a/web-1-1")).Application)
	require.Contains(t, log.String(), "larger than 128 KiB: split the Application")
	larger := newIndex(t, s, api, func(o *ownership.Options) { o.MaxTree = 160 << 10 })
	runs(t, larger)
	require.Equal(t, "g", lookup(t, larger, object("/pods/a/web-1-1")).Application)
}

// After an upgrade, notifications have the new version, and keys of the old version stay for a time.
func TestUpgradeOfArgoCDChangesTheKeys(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	s.put(t, "guestbook", guestbook(1))
	index := newIndex(t, s, api)
	runs(t, index)
	require.Equal(t, "guestbook", lookup(t, index, object("/pods/a/web-1-0")).Application)
	require.NoError(t, s.Set(t.Context(), "app|resources-tree|guestbook|2.0.0.gz", zip(t, guestbook(0)), 0).Err())
	require.NoError(t, s.Publish(t.Context(), "app|managed-resources|guestbook|2.0.0", "").Err())
	require.Eventually(t, func() bool { return lookup(t, index, object("/pods/a/web-1-0")).Application == "" }, waitFor, tick)
	require.Equal(t, "guestbook", lookup(t, index, object("apps/deployments/a/web")).Application)
}

func TestRedisUnavailable(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	s.put(t, "guestbook", guestbook(1))
	var log logtest.Log
	index := newIndex(t, s, api, func(o *ownership.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	runs(t, index)
	pod := object("/pods/a/web-1-0")
	require.Equal(t, "guestbook", lookup(t, index, pod).Application)

	s.stop(t)
	require.Eventually(t, func() bool {
		_, err := index.Lookup(t.Context(), pod)
		return err != nil
	}, waitFor, tick, "cached trees must not be used any more")
	_, err := index.Lookup(t.Context(), pod)
	require.ErrorContains(t, err, "the Redis of this cluster's Argo CD")

	// It comes back empty, as Argo CD's does.
	s.start(t)
	require.Eventually(t, index.Listening, waitFor, tick)
	require.Empty(t, lookup(t, index, pod).Application)
	s.write(t, "guestbook", guestbook(1))
	require.Eventually(t, func() bool { return lookup(t, index, pod).Application == "guestbook" }, waitFor, tick)
	require.Contains(t, log.String(), "Lost subscription to Argo CD cache notifications")
}

// Without a subscription a cached tree is good for one lookup only.
func TestLookupWithoutSubscriptionReadsEachTime(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	s.put(t, "guestbook", guestbook(1))
	index := newIndex(t, s, api)
	pod := object("/pods/a/web-1-0")
	require.Equal(t, "guestbook", lookup(t, index, pod).Application)
	s.put(t, "guestbook", guestbook(0))
	require.Empty(t, lookup(t, index, pod).Application)
	s.put(t, "other", guestbook(1))
	require.Equal(t, "other", lookup(t, index, pod).Application)
}

// What many ask for at once while everything changes is read in turn, and always found.
func TestConcurrentLookups(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	for i := range 50 {
		s.put(t, fmt.Sprint("app-", i), tree(node(fmt.Sprintf("/ConfigMap/b/cm-%d/uid-%d", i, i))))
	}
	index := newIndex(t, s, api)
	runs(t, index)
	var askers sync.WaitGroup
	for asker := range 8 {
		askers.Go(func() {
			for i := range 100 {
				n := (i*7 + asker) % 50
				owner, err := index.Lookup(t.Context(), object(fmt.Sprintf("/configmaps/b/cm-%d", n)))
				if err != nil || owner.Application != fmt.Sprint("app-", n) {
					t.Errorf("cm-%d: %v, %v", n, owner, err)
				}
				if i%10 == 0 {
					if err := s.Publish(context.Background(), fmt.Sprintf("app|managed-resources|app-%d|1.8.3", (n+1)%50), "").Err(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	askers.Wait()
}

func TestLookupEndsWithItsContext(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	index := newIndex(t, s, api)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := index.Lookup(ctx, ownership.Object{UID: "u"})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, lookup(t, index, ownership.Object{UID: "u"}).Application, "and does no harm to the next")
}

// fill writes so many applications with a hundred nodes each.
func fill(tb testing.TB, s *store, applications int) {
	tb.Helper()
	_, err := s.Pipelined(tb.Context(), func(p redis.Pipeliner) error {
		for a := range applications {
			var nodes []map[string]any
			for n := range 100 {
				nodes = append(nodes, node(fmt.Sprintf("/Pod/namespace-%d/pod-%d/8f3b1c52-0000-0000-%04d-%012d", a, n, a, n)))
			}
			p.Set(tb.Context(), fmt.Sprintf("app|resources-tree|application-%d|1.8.3.gz", a), zip(tb, tree(nodes...)), 0)
		}
		return nil
	})
	require.NoError(tb, err)
}

func BenchmarkIndexOf1000Applications(b *testing.B) {
	s, api := newStore(b), newAPIServer(b)
	fill(b, s, 1000)
	index := newIndex(b, s, api)
	runs(b, index)
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	started := time.Now()
	require.Empty(b, lookup(b, index, ownership.Object{UID: "none"}).Application)
	loading := time.Since(started)
	size := heap() - before
	pod := object("/pods/namespace-500/pod-50")
	for b.Loop() {
		if lookup(b, index, pod).Application != "application-500" {
			b.Fatal("not found")
		}
	}
	b.ReportMetric(size/(1<<20), "MiB")
	b.ReportMetric(float64(loading.Milliseconds()), "load-ms")
}
