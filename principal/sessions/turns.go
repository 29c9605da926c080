package sessions

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// maxHeld is how long an agent waits for its turn without a word. It waits 10 s for the answer to its hello in all.
	maxHeld = time.Second
	// maxPromised is how long after now an agent is told to come at the latest. Agents do not wait longer, whatever they are told.
	maxPromised = 2 * time.Minute
)

// turns has sessions begin at no higher rate than the principal can serve: all agents come back at once when their hub has been away. Who
// cannot be served soon is told when to come, each at a time of its own. Nobody is remembered: an agent may come back to another principal.
type turns struct {
	limiter *rate.Limiter // of sessions that begin

	mu       sync.Mutex
	promised time.Time // when the last one is to come that was told. Guarded by mu
}

// newTurns returns turns for so many sessions a second, and as many in a row; any number if it is 0.
func newTurns(perSecond int) *turns {
	if perSecond == 0 {
		return &turns{limiter: rate.NewLimiter(rate.Inf, 0)}
	}
	return &turns{limiter: rate.NewLimiter(rate.Limit(perSecond), perSecond)}
}

// await waits for the turn of an agent. If that is too far off, later is when the agent is to come.
func (t *turns) await(ctx context.Context) (later time.Duration, err error) {
	turn := t.limiter.Reserve()
	delay := turn.Delay()
	if delay > maxHeld {
		turn.Cancel()
		return t.promise(), nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// promise returns in what time another agent is to come: after all that were told before, at the rate at which they are served.
func (t *turns) promise() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	soonest, latest := time.Now().Add(maxHeld), time.Now().Add(maxPromised)
	if t.promised.Before(soonest) || t.promised.After(latest) { // after the latest it begins anew: more come then than are served, and are told again
		t.promised = soonest
	}
	t.promised = t.promised.Add(time.Duration(float64(time.Second) / float64(t.limiter.Limit())))
	return time.Until(t.promised)
}

// errLater is the status of an agent that is to come later.
func errLater(after time.Duration) error {
	s := status.New(codes.ResourceExhausted, "the principal has as many agents to take in as it can serve for now: come again in "+after.Round(time.Millisecond).String())
	if told, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}); err == nil {
		s = told
	}
	return s.Err()
}
