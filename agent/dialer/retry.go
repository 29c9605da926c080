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

// After another agent of the same name superseded its connection, the agent waits from supersededFirst to supersededLast
// instead. Two agents of one name supersede each other whenever one connects, so each connection lasts as long as the other
// waits. Only a connection that lasts for supersededReset shows that there is no other agent any more.
const (
	supersededFirst = time.Minute
	supersededLast  = 15 * time.Minute
	supersededReset = 2 * supersededLast
)

// retry knows how long to wait before the next attempt.
type retry struct {
	wait           time.Duration // after an attempt or a connection that failed
	supersededWait time.Duration // after another agent of the same name superseded this one
}

func newRetry() *retry { return &retry{wait: waitFirst, supersededWait: supersededFirst} }

// after returns how long to wait after a connection that lasted so long and ended like this.
func (r *retry) after(lasted time.Duration, err error) time.Duration {
	if lasted > steady {
		r.wait = waitFirst
	}
	if lasted > supersededReset {
		r.supersededWait = supersededFirst
	}
	var delay time.Duration
	switch {
	case errors.Is(err, errRenewed):
	case superseded(err):
		delay, r.supersededWait = jitter(r.supersededWait), min(2*r.supersededWait, supersededLast)
	default:
		delay, r.wait = jitter(r.wait), min(2*r.wait, waitLast)
	}
	return delay
}

// firstSuperseded reports whether the agent is superseded for the first time in a long while.
func (r *retry) firstSuperseded(lasted time.Duration) bool {
	return r.supersededWait == supersededFirst || lasted > supersededReset
}

// superseded reports whether a connection ended because another agent of the same name is served. That it was this very
// agent, which connected again when it took the connection for dead, nobody learns: by then the connection is closed here.
func superseded(err error) bool { return status.Code(err) == codes.Aborted }

// jitter returns d less up to half of it.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2) //nolint:gosec // this needs no secrecy
}
