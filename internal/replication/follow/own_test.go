package follow_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// newLagging returns a store that has object a with value 1. Its server sends no events from now on.
func newLagging(t *testing.T) *fixture {
	t.Helper()
	server := newAPIServer(t, true)
	server.create(t, "a", "1")
	r := startStore(t, server).synced(t)
	r.expectNoEvents(t)
	r.holdBack()
	return r
}

// catchUp has the server send all events, and requires that the store reports none.
func (r *fixture) catchUp(t *testing.T) {
	t.Helper()
	r.release()
	r.expectNoEvents(t)
}

func TestOwnWriteShowsBeforeWatchEvent(t *testing.T) {
	t.Parallel()
	r := newLagging(t)
	before := r.expectValue(t, "a", "1")
	answer := r.update(t, "a", "2")
	r.expectValue(t, "a", "1")
	own := r.recordWrite(t, answer)
	require.Same(t, own, r.expectValue(t, "a", "2"))
	require.Same(t, before, own.before)
	r.expectEvents(t, "a: 1 to 2")
	created := r.recordWrite(t, r.create(t, "b", "1"))
	require.Same(t, created, r.expectValue(t, "b", "1"))
	r.expectEvents(t, "b: none to 1")
	r.catchUp(t)
	require.Same(t, own, r.expectValue(t, "a", "2"))
	require.Same(t, created, r.expectValue(t, "b", "1"))
}

func TestOlderWatchEventDoesNotUndoOwnWrite(t *testing.T) {
	t.Parallel()
	r := newLagging(t)
	r.update(t, "a", "2")
	r.recordWrite(t, r.update(t, "a", "3"))
	r.expectEvents(t, "a: 1 to 3")
	r.catchUp(t)
	r.expectValue(t, "a", "3")
}

func TestNewerWatchEventFollowsOwnWrite(t *testing.T) {
	t.Parallel()
	r := newLagging(t)
	r.recordWrite(t, r.update(t, "a", "2"))
	r.update(t, "a", "3")
	r.expectEvents(t, "a: 1 to 2")
	r.release()
	r.expectEvents(t, "a: 2 to 3")
	r.recordWrite(t, r.update(t, "a", "4"))
	r.expectEvents(t, "a: 3 to 4")
	r.remove(t, "a")
	r.expectEvents(t, "a: 4 to none")
	r.expectNoEvents(t)
}

func TestOwnWriteAfterItsWatchEventIsNoChange(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	answer := r.create(t, "a", "1")
	r.expectEvents(t, "a: none to 1")
	held := r.expectValue(t, "a", "1")
	require.Equal(t, "1", r.recordWrite(t, answer).value)
	require.Same(t, held, r.expectValue(t, "a", "1"))
	r.expectNoEvents(t)
}

func TestOwnWriteDoesNotReviveDeletedObject(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	answer := r.create(t, "a", "1")
	r.remove(t, "a")
	r.expectEvents(t, "a: none to 1", "a: 1 to none")
	require.Equal(t, "1", r.recordWrite(t, answer).value)
	r.expectValue(t, "a", "none")
	r.expectNoEvents(t)
}

func TestOwnWriteDoesNotReviveObjectMissingInRelist(t *testing.T) {
	t.Parallel()
	r := newLagging(t)
	answer := r.create(t, "b", "1")
	r.remove(t, "b")
	r.remove(t, "a")
	r.expire(true)
	r.expectEvents(t, "vanished: a")
	require.Equal(t, "1", r.recordWrite(t, answer).value)
	r.expectValue(t, "b", "none")
	r.expectNoEvents(t)
}

// Several goroutines write, and the answers need not come in the order of the writes.
func TestOlderOwnWriteDoesNotUndoNewerOne(t *testing.T) {
	t.Parallel()
	r := newLagging(t)
	second := r.update(t, "a", "2")
	third := r.update(t, "a", "3")
	newest := r.recordWrite(t, third)
	r.recordWrite(t, second)
	require.Same(t, newest, r.expectValue(t, "a", "3"))
	r.recordWrite(t, third)
	r.expectEvents(t, "a: 1 to 3")
	r.catchUp(t)
	require.Same(t, newest, r.expectValue(t, "a", "3"))
}

func TestOlderListKeepsOwnWrites(t *testing.T) {
	t.Parallel()
	eachAPIServer(t, func(t *testing.T, server *apiServer) {
		for _, name := range []string{"a", "b", "c"} {
			server.create(t, name, "1")
		}
		r := startStore(t, server).synced(t)
		r.expectNoEvents(t)
		r.holdBack()
		r.recordWrite(t, r.update(t, "a", "2"))
		r.update(t, "b", "2")
		r.remove(t, "b")
		r.recordDelete(r.expectValue(t, "b", "1"))
		r.recordWrite(t, r.create(t, "d", "1"))
		r.expectEvents(t, "a: 1 to 2", "b: 1 to none", "d: none to 1")
		<-r.listed
		r.expireHeld()
		await(t, r.listed)
		r.catchUp(t)
		r.expectValue(t, "a", "2")
		r.expectValue(t, "b", "none")
		r.expectValue(t, "c", "1")
		r.expectValue(t, "d", "1")
	})
}

func TestOwnWritesVanishInRelist(t *testing.T) {
	t.Parallel()
	r := newLagging(t)
	r.recordWrite(t, r.update(t, "a", "2"))
	r.recordWrite(t, r.create(t, "b", "1"))
	r.expectEvents(t, "a: 1 to 2", "b: none to 1")
	r.remove(t, "a")
	r.remove(t, "b")
	r.expire(true)
	r.expectEvents(t, "vanished: a b")
	r.expectNoEvents(t)
}

func TestOwnDeletionShowsAtOnce(t *testing.T) {
	t.Parallel()
	r := newLagging(t)
	r.remove(t, "a")
	r.recordDelete(r.expectValue(t, "a", "1"))
	r.expectValue(t, "a", "none")
	r.expectEvents(t, "a: 1 to none")
	r.catchUp(t)
	r.expectValue(t, "a", "none")
}

func TestOwnDeletionIsReportedOnce(t *testing.T) {
	t.Parallel()
	r, held := newWithObject(t)
	r.remove(t, "a")
	r.expectEvents(t, "a: 1 to none")
	r.recordDelete(held)
	r.expectNoEvents(t)
}

func TestOwnDeletionOfOlderRevisionIsIgnored(t *testing.T) {
	t.Parallel()
	r, held := newWithObject(t)
	r.update(t, "a", "2")
	r.expectEvents(t, "a: 1 to 2")
	r.recordDelete(held)
	r.expectValue(t, "a", "2")
	r.expectNoEvents(t)
}

func TestDeletedObjectIgnoresOlderWatchEvents(t *testing.T) {
	t.Parallel()
	t.Run("by the watch", func(t *testing.T) {
		t.Parallel()
		r := newLagging(t)
		held := r.expectValue(t, "a", "1")
		r.update(t, "a", "2") // somebody else, and the store has not seen it yet
		r.remove(t, "a")
		r.recordDelete(held)
		r.expectEvents(t, "a: 1 to none")
		r.catchUp(t)
	})
	t.Run("by the watch, after an own write", func(t *testing.T) {
		t.Parallel()
		r := newLagging(t)
		own := r.recordWrite(t, r.update(t, "a", "2"))
		r.remove(t, "a")
		r.recordDelete(own)
		r.expectEvents(t, "a: 1 to 2", "a: 2 to none")
		r.catchUp(t)
	})
	t.Run("by the late answer to an own write", func(t *testing.T) {
		t.Parallel()
		r := newLagging(t)
		answer := r.update(t, "a", "2")
		r.remove(t, "a")
		r.recordDelete(r.expectValue(t, "a", "1"))
		r.expectEvents(t, "a: 1 to none")
		require.Equal(t, "2", r.recordWrite(t, answer).value)
		r.expectValue(t, "a", "none")
		r.catchUp(t)
	})
}

func TestRecreatedObjectIsAnotherObject(t *testing.T) {
	t.Parallel()
	t.Run("by this program", func(t *testing.T) {
		t.Parallel()
		r := newLagging(t)
		first := r.expectValue(t, "a", "1")
		r.remove(t, "a")
		r.recordDelete(first)
		second := r.recordWrite(t, r.create(t, "a", "2"))
		r.expectEvents(t, "a: 1 to none", "a: none to 2")
		require.Nil(t, second.before)
		require.NotEqual(t, first.uid, second.uid)
		r.catchUp(t)
		require.Same(t, second, r.expectValue(t, "a", "2"))
	})
	t.Run("by this program, after somebody else deleted it", func(t *testing.T) {
		t.Parallel()
		r := newLagging(t)
		r.remove(t, "a")
		second := r.recordWrite(t, r.create(t, "a", "2"))
		r.expectEvents(t, "a: 1 to 2")
		r.catchUp(t)
		require.Same(t, second, r.expectValue(t, "a", "2"))
	})
	t.Run("by somebody else", func(t *testing.T) {
		t.Parallel()
		r := newLagging(t)
		r.remove(t, "a")
		r.recordDelete(r.expectValue(t, "a", "1"))
		second := r.create(t, "a", "2")
		r.expectEvents(t, "a: 1 to none")
		r.release()
		r.expectEvents(t, "a: none to 2")
		require.Equal(t, second.UID, r.expectValue(t, "a", "2").uid)
		r.expectNoEvents(t)
	})
	t.Run("by somebody else, and a new list shows it", func(t *testing.T) {
		t.Parallel()
		r := newLagging(t)
		r.remove(t, "a")
		r.recordDelete(r.expectValue(t, "a", "1"))
		second := r.create(t, "a", "2")
		r.expectEvents(t, "a: 1 to none")
		r.expire(true)
		r.expectEvents(t, "a: none to 2")
		require.Equal(t, second.UID, r.expectValue(t, "a", "2").uid)
		r.expectNoEvents(t)
	})
}
