package pace_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/pace"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
)

// takes is something that takes so long.
func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestOneByOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		times, err := pace.OneByOne(t.Context(), time.Second, takes(300*time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, []time.Duration{300e6, 300e6, 300e6, 300e6}, times, "the last one ends")

		times, err = pace.OneByOne(t.Context(), 0, takes(time.Minute))
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Minute}, times)

		broken := errors.New("broken")
		_, err = pace.OneByOne(t.Context(), time.Second, func(context.Context) error { return broken })
		require.ErrorIs(t, err, broken)
	})
}

func TestAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		done, err := pace.AtOnce(t.Context(), 16, 10*time.Second, takes(100*time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, 1600, done)

		broken := errors.New("broken")
		_, err = pace.AtOnce(t.Context(), 16, time.Hour, func(context.Context) error { return broken })
		require.ErrorIs(t, err, broken)
	})
}

func TestMeanwhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		count := 0
		stop := pace.Meanwhile(t.Context(), func(ctx context.Context) error {
			count++
			return takes(time.Second)(ctx)
		})
		require.NoError(t, takes(2500*time.Millisecond)(t.Context()))
		require.NoError(t, stop(), "that the third time is cut short is what was asked for")
		require.Equal(t, 3, count)

		broken := errors.New("broken")
		stop = pace.Meanwhile(t.Context(), func(context.Context) error { return broken })
		synctest.Wait()
		require.ErrorIs(t, stop(), broken)
	})
}
