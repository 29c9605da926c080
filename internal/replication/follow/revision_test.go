package follow_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// revisionOf returns the revision of what another client wrote.
func revisionOf(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	require.NoError(t, err)
	return revision
}

// reaching calls Reach, and returns what it returns.
func (r *fixture) reaching(ctx context.Context, revision uint64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.store.Reach(ctx, revision) }()
	return done
}

func TestRevisionIsThatOfTheNewestChange(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	require.Zero(t, r.store.Revision(), "of nothing")
	r.bookmark()
	a := r.create(t, "a", "1")
	r.expectEvents(t, "a: none to 1")
	require.Equal(t, revisionOf(t, a.ResourceVersion), r.store.Revision())
	r.remove(t, "a")
	r.expectEvents(t, "a: 1 to none")
	gone := r.store.Revision()
	require.Greater(t, gone, revisionOf(t, a.ResourceVersion), "the deletion has one of its own")

	r.holdBack()
	own := r.create(t, "b", "own")
	_, err := r.store.RecordWrite(own)
	require.NoError(t, err)
	require.Equal(t, revisionOf(t, own.ResourceVersion), r.store.Revision(), "what this program wrote shows")
}

func TestReachWaitsForTheWatch(t *testing.T) {
	t.Parallel()
	r, a := newWithObject(t)
	require.NoError(t, r.store.Reach(t.Context(), revisionOf(t, a.revision)))
	r.deny(true) // the API server answers nothing
	r.dropWatches()
	b := r.create(t, "b", "1")
	reached := r.reaching(t.Context(), revisionOf(t, b.ResourceVersion))
	await(t, r.refused)
	select {
	case err := <-reached:
		require.Fail(t, "it did not wait", "%v", err)
	default:
	}
	r.deny(false)
	require.NoError(t, await(t, reached))
	r.expectValue(t, "b", "1")
}

// This program's own write does not say that others' before it were seen.
func TestReachIsNotOfOwnWrites(t *testing.T) {
	t.Parallel()
	r := newSynced(t)
	r.deny(true)
	r.dropWatches()
	others := r.create(t, "a", "1")
	_, err := r.store.RecordWrite(r.create(t, "b", "own"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	reached := r.reaching(ctx, revisionOf(t, others.ResourceVersion))
	await(t, r.refused)
	cancel()
	err = await(t, reached)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "it has come to revision 10, and "+others.ResourceVersion+" was seen before")
}

// A revision that the API server has not come to is of one that was restored since, or made up.
func TestReachDoesNotWaitForWhatNeverCame(t *testing.T) {
	t.Parallel()
	r, _ := newWithObject(t)
	require.NoError(t, r.store.Reach(t.Context(), 1<<63))
}
