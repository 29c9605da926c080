package dialer_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// later is the refusal of a principal that says when to come.
func later(t *testing.T, delay *durationpb.Duration) error {
	t.Helper()
	s, err := status.New(codes.ResourceExhausted, "come again").WithDetails(&errdetails.RetryInfo{RetryDelay: delay})
	require.NoError(t, err)
	return s.Err()
}

// The agent comes when its principal says, which makes no later attempt wait for longer.
func TestAgentComesWhenItIsTold(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c := <-o.principal.calls
		for _, told := range []time.Duration{30 * time.Second, time.Second, 90 * time.Second} {
			var waits []time.Duration
			c, waits = o.refuse(c, later(t, durationpb.New(told)), 1)
			require.GreaterOrEqual(t, waits[0], told)
			require.LessOrEqual(t, waits[0], told+500*time.Millisecond+distance)
		}
		_, waits := o.refuse(c, status.Error(codes.Unauthenticated, "not you"), 1)
		requireJittered(t, 500*time.Millisecond, waits[0])
		require.Contains(t, o.log.String(), "Principal asks to connect later")
	})
}

// A principal that lies about when to come keeps an agent away for no longer than two minutes, and does not have it come without end.
func TestPrincipalThatTellsAgentsNonsense(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c := <-o.principal.calls
		for _, told := range []*durationpb.Duration{durationpb.New(time.Hour), durationpb.New(math.MaxInt64), {Seconds: 315_576_000_000}} {
			var waits []time.Duration
			c, waits = o.refuse(c, later(t, told), 1)
			require.GreaterOrEqual(t, waits[0], 2*time.Minute)
			require.LessOrEqual(t, waits[0], 2*time.Minute+500*time.Millisecond+distance)
		}
		want := 500 * time.Millisecond
		for _, told := range []*durationpb.Duration{nil, durationpb.New(0), durationpb.New(-time.Hour), {Seconds: math.MinInt64}, {Seconds: 1, Nanos: -5}, {Seconds: math.MaxInt64}} {
			var waits []time.Duration
			c, waits = o.refuse(c, later(t, told), 1)
			requireJittered(t, want, waits[0])
			want = min(2*want, 30*time.Second)
		}
	})
}
