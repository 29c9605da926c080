package follow_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// lagging returns a rig that holds a with value 1, and whose server shows nothing of what happens from now on.
func lagging(t *testing.T) *rig {
	t.Helper()
	server := newAPIServer(t, true)
	server.create(t, "a", "1")
	r := follows(t, server).synced(t)
	r.quiet(t)
	r.hold()
	return r
}

// catchesUp requires that the store tells nothing when all that was held is shown.
func (r *rig) catchesUp(t *testing.T) {
	t.Helper()
	r.release()
	r.quiet(t)
}

func TestOwnWriteShowsBeforeWatchEvent(t *testing.T) {
	t.Parallel()
	r := lagging(t)
	before := r.shows(t, "a", "1")
	answer := r.update(t, "a", "2")
	r.shows(t, "a", "1")
	own := r.wrote(t, answer)
	require.Same(t, own, r.shows(t, "a", "2"))
	require.Same(t, before, own.before)
	r.tells(t, "a: 1 to 2")
	created := r.wrote(t, r.create(t, "b", "1"))
	require.Same(t, created, r.shows(t, "b", "1"))
	r.tells(t, "b: none to 1")
	r.catchesUp(t)
	require.Same(t, own, r.shows(t, "a", "2"))
	require.Same(t, created, r.shows(t, "b", "1"))
}

func TestOlderWatchEventDoesNotUndoOwnWrite(t *testing.T) {
	t.Parallel()
	r := lagging(t)
	r.update(t, "a", "2")
	r.wrote(t, r.update(t, "a", "3"))
	r.tells(t, "a: 1 to 3")
	r.catchesUp(t)
	r.shows(t, "a", "3")
}

func TestNewerWatchEventFollowsOwnWrite(t *testing.T) {
	t.Parallel()
	r := lagging(t)
	r.wrote(t, r.update(t, "a", "2"))
	r.update(t, "a", "3")
	r.tells(t, "a: 1 to 2")
	r.release()
	r.tells(t, "a: 2 to 3")
	r.wrote(t, r.update(t, "a", "4"))
	r.tells(t, "a: 3 to 4")
	r.remove(t, "a")
	r.tells(t, "a: 4 to none")
	r.quiet(t)
}

func TestOwnWriteAfterItsWatchEventIsNoChange(t *testing.T) {
	t.Parallel()
	r := follows(t, newAPIServer(t, true)).synced(t)
	answer := r.create(t, "a", "1")
	r.tells(t, "a: none to 1")
	held := r.shows(t, "a", "1")
	require.Equal(t, "1", r.wrote(t, answer).value)
	require.Same(t, held, r.shows(t, "a", "1"))
	r.quiet(t)
}

func TestOwnWriteDoesNotReviveDeletedObject(t *testing.T) {
	t.Parallel()
	r := follows(t, newAPIServer(t, true)).synced(t)
	answer := r.create(t, "a", "1")
	r.remove(t, "a")
	r.tells(t, "a: none to 1", "a: 1 to none")
	require.Equal(t, "1", r.wrote(t, answer).value)
	r.shows(t, "a", "none")
	r.quiet(t)
}

func TestOwnWriteDoesNotReviveObjectMissingInRelist(t *testing.T) {
	t.Parallel()
	r := lagging(t)
	answer := r.create(t, "b", "1")
	r.remove(t, "b")
	r.remove(t, "a")
	r.expire(true)
	r.tells(t, "vanished: a")
	require.Equal(t, "1", r.wrote(t, answer).value)
	r.shows(t, "b", "none")
	r.quiet(t)
}

// Several goroutines write, and the answers need not come in the order of the writes.
func TestOlderOwnWriteDoesNotUndoNewerOne(t *testing.T) {
	t.Parallel()
	r := lagging(t)
	second := r.update(t, "a", "2")
	third := r.update(t, "a", "3")
	newest := r.wrote(t, third)
	r.wrote(t, second)
	require.Same(t, newest, r.shows(t, "a", "3"))
	r.wrote(t, third)
	r.tells(t, "a: 1 to 3")
	r.catchesUp(t)
	require.Same(t, newest, r.shows(t, "a", "3"))
}

func TestOlderListKeepsOwnWrites(t *testing.T) {
	t.Parallel()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		for _, name := range []string{"a", "b", "c"} {
			server.create(t, name, "1")
		}
		r := follows(t, server).synced(t)
		r.quiet(t)
		r.hold()
		r.wrote(t, r.update(t, "a", "2"))
		r.update(t, "b", "2")
		r.remove(t, "b")
		r.store.Erased(r.shows(t, "b", "1"))
		r.wrote(t, r.create(t, "d", "1"))
		r.tells(t, "a: 1 to 2", "b: 1 to none", "d: none to 1")
		<-r.listed
		r.expireHeld()
		await(t, r.listed)
		r.catchesUp(t)
		r.shows(t, "a", "2")
		r.shows(t, "b", "none")
		r.shows(t, "c", "1")
		r.shows(t, "d", "1")
	})
}

func TestOwnWritesVanishInRelist(t *testing.T) {
	t.Parallel()
	r := lagging(t)
	r.wrote(t, r.update(t, "a", "2"))
	r.wrote(t, r.create(t, "b", "1"))
	r.tells(t, "a: 1 to 2", "b: none to 1")
	r.remove(t, "a")
	r.remove(t, "b")
	r.expire(true)
	r.tells(t, "vanished: a b")
	r.quiet(t)
}

func TestOwnDeletionShowsAtOnce(t *testing.T) {
	t.Parallel()
	r := lagging(t)
	r.remove(t, "a")
	r.store.Erased(r.shows(t, "a", "1"))
	r.shows(t, "a", "none")
	r.tells(t, "a: 1 to none")
	r.catchesUp(t)
	r.shows(t, "a", "none")
}

func TestOwnDeletionIsReportedOnce(t *testing.T) {
	t.Parallel()
	r := follows(t, newAPIServer(t, true)).synced(t)
	r.create(t, "a", "1")
	r.tells(t, "a: none to 1")
	held := r.shows(t, "a", "1")
	r.remove(t, "a")
	r.tells(t, "a: 1 to none")
	r.store.Erased(held)
	r.quiet(t)
}

func TestOwnDeletionOfOlderRevisionIsIgnored(t *testing.T) {
	t.Parallel()
	r := follows(t, newAPIServer(t, true)).synced(t)
	r.create(t, "a", "1")
	r.tells(t, "a: none to 1")
	held := r.shows(t, "a", "1")
	r.update(t, "a", "2")
	r.tells(t, "a: 1 to 2")
	r.store.Erased(held)
	r.shows(t, "a", "2")
	r.quiet(t)
}

func TestDeletedObjectIgnoresOlderWatchEvents(t *testing.T) {
	t.Parallel()
	t.Run("by the watch", func(t *testing.T) {
		t.Parallel()
		r := lagging(t)
		held := r.shows(t, "a", "1")
		r.update(t, "a", "2") // somebody else, and the store has not seen it yet
		r.remove(t, "a")
		r.store.Erased(held)
		r.tells(t, "a: 1 to none")
		r.catchesUp(t)
	})
	t.Run("by the watch, after an own write", func(t *testing.T) {
		t.Parallel()
		r := lagging(t)
		own := r.wrote(t, r.update(t, "a", "2"))
		r.remove(t, "a")
		r.store.Erased(own)
		r.tells(t, "a: 1 to 2", "a: 2 to none")
		r.catchesUp(t)
	})
	t.Run("by the late answer to an own write", func(t *testing.T) {
		t.Parallel()
		r := lagging(t)
		answer := r.update(t, "a", "2")
		r.remove(t, "a")
		r.store.Erased(r.shows(t, "a", "1"))
		r.tells(t, "a: 1 to none")
		require.Equal(t, "2", r.wrote(t, answer).value)
		r.shows(t, "a", "none")
		r.catchesUp(t)
	})
}

func TestRecreatedObjectIsAnotherObject(t *testing.T) {
	t.Parallel()
	t.Run("by this program", func(t *testing.T) {
		t.Parallel()
		r := lagging(t)
		first := r.shows(t, "a", "1")
		r.remove(t, "a")
		r.store.Erased(first)
		second := r.wrote(t, r.create(t, "a", "2"))
		r.tells(t, "a: 1 to none", "a: none to 2")
		require.Nil(t, second.before)
		require.NotEqual(t, first.uid, second.uid)
		r.catchesUp(t)
		require.Same(t, second, r.shows(t, "a", "2"))
	})
	t.Run("by this program, after somebody else deleted it", func(t *testing.T) {
		t.Parallel()
		r := lagging(t)
		r.remove(t, "a")
		second := r.wrote(t, r.create(t, "a", "2"))
		r.tells(t, "a: 1 to 2")
		r.catchesUp(t)
		require.Same(t, second, r.shows(t, "a", "2"))
	})
	t.Run("by somebody else", func(t *testing.T) {
		t.Parallel()
		r := lagging(t)
		r.remove(t, "a")
		r.store.Erased(r.shows(t, "a", "1"))
		second := r.create(t, "a", "2")
		r.tells(t, "a: 1 to none")
		r.release()
		r.tells(t, "a: none to 2")
		require.Equal(t, second.UID, r.shows(t, "a", "2").uid)
		r.quiet(t)
	})
	t.Run("by somebody else, and a new list shows it", func(t *testing.T) {
		t.Parallel()
		r := lagging(t)
		r.remove(t, "a")
		r.store.Erased(r.shows(t, "a", "1"))
		second := r.create(t, "a", "2")
		r.tells(t, "a: 1 to none")
		r.expire(true)
		r.tells(t, "a: none to 2")
		require.Equal(t, second.UID, r.shows(t, "a", "2").uid)
		r.quiet(t)
	})
}
