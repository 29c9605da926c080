package follow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

func TestFirstListFillsTheStore(t *testing.T) {
	t.Parallel()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		server.create(t, "a", "1")
		server.create(t, "b", "1")
		r := startStore(t, server)
		require.Equal(t, map[bool]string{true: "watch", false: "list"}[server.streaming], await(t, server.listed))
		r.expectEventsInAnyOrder(t, "a: none to 1", "b: none to 1")
		r.wait(t)
		require.NoError(t, r.store.Ready())
		a := r.expectValue(t, "a", "1")
		require.Equal(t, "11", a.revision)
		require.Equal(t, "uid-11", string(a.uid))
		require.Nil(t, a.before)
		r.expectValue(t, "b", "1")
		r.expectValue(t, "c", "none")
		r.expectNoEvents(t)
	})
}

func TestEmptyListSyncs(t *testing.T) {
	t.Parallel()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		r := startStore(t, server).synced(t)
		require.NoError(t, r.store.Ready())
		r.expectNoEvents(t)
	})
}

func TestNothingIsReadyBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	s := follow.New(follow.Options[*corev1.ConfigMap, *kept]{})
	require.ErrorContains(t, s.Ready(), "the first list of *v1.ConfigMap is under way")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, s.Wait(ended), "synced without a list")
}

func TestWatchEventsAreReported(t *testing.T) {
	t.Parallel()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		r := startStore(t, server).synced(t)
		r.create(t, "a", "1")
		r.expectEvents(t, "a: none to 1")
		first := r.expectValue(t, "a", "1")
		r.update(t, "a", "2")
		r.expectEvents(t, "a: 1 to 2")
		require.Same(t, first, r.expectValue(t, "a", "2").before, "what was kept before is there to be used again")
		r.create(t, "b", "1")
		r.expectEvents(t, "b: none to 1")
		r.remove(t, "a")
		r.expectEvents(t, "a: 2 to none")
		r.expectValue(t, "a", "none")
		r.expectValue(t, "b", "1")
		r.create(t, "a", "3")
		r.expectEvents(t, "a: none to 3")
		require.NotEqual(t, first.uid, r.expectValue(t, "a", "3").uid)
		require.Nil(t, r.expectValue(t, "a", "3").before)
		r.expectNoEvents(t)
	})
}

func TestRelistReportsChangedAndVanished(t *testing.T) {
	t.Parallel()
	for name, inStream := range map[string]bool{"the watch ends with an error": true, "the next watch is refused": false} {
		t.Run(name, func(t *testing.T) {
			eachAPIServer(t, func(t *testing.T, server *apiServer) {
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					server.create(t, name, "1", "east")
				}
				r := startStore(t, server).synced(t)
				same := r.expectValue(t, "d", "1")
				r.expectNoEvents(t)
				r.holdBack()
				r.update(t, "a", "2", "east")
				r.remove(t, "b")
				r.remove(t, "c")
				r.remove(t, "e")
				again := r.create(t, "e", "2", "east")
				r.create(t, "f", "1", "east")
				r.expire(inStream)
				r.expectEventsInAnyOrder(t, "a: 1 to 2", "e: 1 to 2", "f: none to 1")
				r.expectEvents(t, "vanished: b c")
				r.expectValue(t, "b", "none")
				require.Same(t, same, r.expectValue(t, "d", "1"))
				require.Equal(t, again.UID, r.expectValue(t, "e", "2").uid)
				require.Equal(t, []string{"a", "d", "e", "f"}, r.group("east"))
				r.expectNoEvents(t)
			})
		})
	}
}

func TestDroppedWatchResumes(t *testing.T) {
	t.Parallel()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		server.create(t, "a", "1")
		server.create(t, "b", "1")
		r := startStore(t, server).synced(t)
		r.expectNoEvents(t)
		<-r.listed
		for len(r.watched) > 0 {
			<-r.watched
		}
		r.holdBack()
		r.update(t, "a", "2")
		r.remove(t, "b")
		r.dropWatches()
		require.Equal(t, "13", await(t, r.watched))
		r.release()
		r.expectEvents(t, "a: 1 to 2", "b: 1 to none")
		r.expectNoEvents(t)
		require.Empty(t, r.listed, "nothing was listed again")
	})
}

func TestForbiddenListIsTheReasonForNotReady(t *testing.T) {
	t.Parallel()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		server.create(t, "a", "1")
		server.deny(true)
		r := startStore(t, server)
		require.Equal(t, "watch", await(t, r.refused))
		require.Equal(t, "list", await(t, r.refused))
		require.ErrorContains(t, r.store.Ready(), "*v1.ConfigMap: configmaps is forbidden: cannot")
		r.deny(false)
		r.expectEvents(t, "a: none to 1")
		r.wait(t)
		require.NoError(t, r.store.Ready())
		r.expectNoEvents(t)
	})
}

func TestForbiddenWatchLosesNothing(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t, true)
	server.create(t, "a", "1")
	server.create(t, "b", "1")
	r := startStore(t, server).synced(t)
	r.expectNoEvents(t)
	r.deny(true)
	r.dropWatches()
	require.Equal(t, "list", await(t, r.refused)) // of how far the server has come
	r.expectValue(t, "a", "1")
	require.NoError(t, r.store.Ready())
	r.update(t, "a", "2")
	r.remove(t, "b")
	r.deny(false)
	r.expectEvents(t, "a: 1 to 2", "vanished: b")
	r.expectNoEvents(t)
}

func TestOlderWatchEventsAreIgnored(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	first := r.create(t, "a", "1")
	r.expectEvents(t, "a: none to 1")
	second := r.update(t, "a", "2")
	r.expectEvents(t, "a: 1 to 2")
	held := r.expectValue(t, "a", "2")
	r.sendEvent(watch.Modified, first)
	r.sendEvent(watch.Added, second)
	r.sendEvent(watch.Deleted, first)
	r.expectNoEvents(t)
	require.Same(t, held, r.expectValue(t, "a", "2"))
}

func TestDeletionOfUnknownObjectIsIgnored(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	object := r.create(t, "a", "1")
	r.expectEvents(t, "a: none to 1")
	object.Name = "b"
	r.sendEvent(watch.Deleted, object)
	r.expectNoEvents(t)
}

func TestObjectWithoutResourceVersionBlocksNoOther(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	strange := r.create(t, "a", "1")
	r.expectEvents(t, "a: none to 1")
	strange.ResourceVersion = "new"
	_, err := r.store.RecordWrite(strange)
	require.ErrorContains(t, err, "resource version of argocd/a")
	strange.Data["value"] = "2"
	r.sendEvent(watch.Modified, strange)
	r.sendEvent(watch.Deleted, strange)
	r.expectNoEvents(t)
	r.expectValue(t, "a", "1")
}

// What is watched is a selection, so only bookmarks say that the watch has passed an own write.
func TestBookmarksAdvanceTheRevision(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	r.expectNoEvents(t)
	answer := r.create(t, "a", "1")
	r.expectEvents(t, "a: none to 1")
	late := answer.DeepCopy()
	late.Name, late.UID = "late", "another"
	r.expectNoEvents(t)
	late.ResourceVersion = r.bookmark() // the watch was past this write before its answer came
	r.dropWatches()
	for await(t, r.watched) != late.ResourceVersion { // only once the bookmark was taken in
		continue
	}
	require.Equal(t, "1", r.recordWrite(t, late).value)
	r.expectValue(t, "late", "none")
	r.expectNoEvents(t)
}

func TestGroupsFollowTheirObjects(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t, false)
	server.create(t, "a", "1", "east")
	server.create(t, "b", "1", "east")
	server.create(t, "c", "1", "west")
	r := startStore(t, server).synced(t)
	require.Equal(t, []string{"a", "b"}, r.group("east"))
	require.Equal(t, []string{"c"}, r.group("west"))
	require.Empty(t, r.group("north"))

	before := r.store.Group("east")
	r.update(t, "a", "2", "west")
	r.expectEvents(t, "a: 1 to 2")
	require.Equal(t, []string{"b"}, r.group("east"))
	require.Equal(t, []string{"a", "c"}, r.group("west"))
	var values []string
	for k := range before {
		values = append(values, k.value)
	}
	require.Equal(t, []string{"1", "1"}, values, "as they were when asked for")
	for range r.store.Group("west") {
		break // must not go on
	}

	r.holdBack()
	r.recordWrite(t, r.update(t, "c", "2", "east"))
	require.Equal(t, []string{"b", "c"}, r.group("east"))
	r.remove(t, "b")
	r.recordDelete(r.expectValue(t, "b", "1"))
	require.Equal(t, []string{"c"}, r.group("east"))
	r.release()
	r.expectEvents(t, "c: 1 to 2", "b: 1 to none")
	r.remove(t, "a")
	r.expectEvents(t, "a: 2 to none")
	require.Empty(t, r.group("west"))
	r.expectNoEvents(t)
}

func TestStoreWithoutGroupsHasOne(t *testing.T) {
	t.Parallel()
	s := follow.New(follow.Options[*corev1.ConfigMap, *kept]{Reduce: reduce, Changed: func(*kept, *kept) {}})
	for name, revision := range map[string]string{"a": "1", "b": "2"} {
		_, err := s.RecordWrite(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: revision},
		})
		require.NoError(t, err)
	}
	require.Len(t, (&fixture{store: s}).group(""), 2)
}

// An API server that was restored from a backup counts its revisions from there. What it has is what there is.
func TestEtcdRestoreRewindsRevisions(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(func(watch.EventType, any)){"410 Gone": tooOld(true), "connection dropped": dropped} {
		t.Run(name, func(t *testing.T) { testRestore(t, end) })
	}
}

func testRestore(t *testing.T, end func(func(watch.EventType, any))) {
	t.Helper()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		server.create(t, "a", "1")
		server.create(t, "b", "1")
		server.create(t, "c", "1")
		r := startStore(t, server).synced(t)
		r.update(t, "a", "2")
		r.expectEvents(t, "a: 1 to 2")
		r.recordWrite(t, r.update(t, "b", "2"))
		r.expectEvents(t, "b: 1 to 2")
		r.create(t, "d", "1")
		r.expectEvents(t, "d: none to 1")
		r.remove(t, "c")
		r.expectEvents(t, "c: 1 to none")
		r.restore(3, end)
		r.expectEventsInAnyOrder(t, "a: 2 to 1", "b: 2 to 1", "c: none to 1")
		r.expectEvents(t, "vanished: d")
		r.update(t, "a", "3")
		r.expectEvents(t, "a: 1 to 3")
		r.recordWrite(t, r.create(t, "d", "2"))
		r.expectEvents(t, "d: none to 2")
		r.expectValue(t, "d", "2")
	})
}
