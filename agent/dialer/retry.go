package dialer

import (
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Between attempts to connect it waits from waitFirst to waitLast, doubling, each less up to half of itself at random, so
// that a principal that restarts is not met by all its agents at once. A connection that lasted for steady resets that.
const (
	waitFirst = 500 * time.Millisecond
	waitLast  = 30 * time.Second
	steady    = 10 * time.Second
)

// After a connection ended because another agent of its name is served, the agent waits from rivalFirst to rivalLast instead. Two of one
// name drive each other away whenever one of them connects, so each connection lasts as long as the other waits: only one
// that outlasted the longest of these waits by far shows that there is no other any more.
const (
	rivalFirst = time.Minute
	rivalLast  = 15 * time.Minute
	unrivalled = 2 * rivalLast
)

// retry knows how long to wait before the next attempt.
type retry struct {
	wait  time.Duration // after an attempt or a connection that failed
	rival time.Duration // after another agent of the same name was preferred
}

func newRetry() *retry { return &retry{wait: waitFirst, rival: rivalFirst} }

// after returns how long to wait after a connection that lasted so long and ended like this.
func (r *retry) after(lasted time.Duration, err error) time.Duration {
	if lasted > steady {
		r.wait = waitFirst
	}
	if lasted > unrivalled {
		r.rival = rivalFirst
	}
	var delay time.Duration
	switch {
	case errors.Is(err, errRenewed):
	case superseded(err):
		delay, r.rival = jitter(r.rival), min(2*r.rival, rivalLast)
	default:
		delay, r.wait = jitter(r.wait), min(2*r.wait, waitLast)
	}
	return delay
}

// firstSuperseded reports whether the next time that another agent is preferred is the first one in a long while.
func (r *retry) firstSuperseded(lasted time.Duration) bool {
	return r.rival == rivalFirst || lasted > unrivalled
}

// superseded reports whether a connection ended because another agent of the same name is served. That it was this very
// agent, which connected again when it took the connection for dead, nobody learns: by then the connection is closed here.
func superseded(err error) bool { return status.Code(err) == codes.Aborted }

// jitter returns d less up to half of it.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2) //nolint:gosec // this needs no secrecy
}
