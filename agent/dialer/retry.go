package dialer

import (
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
)

// While the network is the reason, the agent waits from lostFirst to lostLast between attempts to connect, doubling. A
// principal that has been away for however long is found within lostLast and the time of one attempt. A connection that
// lasted for lostReset resets the wait, so that each of several restarts in a row is followed by a connection at once.
const (
	lostFirst = 500 * time.Millisecond
	lostLast  = 2 * time.Second
	lostReset = time.Second
)

// When the principal answered and would not have the agent, or did not answer the hello, another attempt soon would have no
// other answer, and would cost the principal a handshake. A connection that lasted for steady resets that wait.
const (
	refusedFirst = 500 * time.Millisecond
	refusedLast  = 30 * time.Second
	steady       = 10 * time.Second
)

// After another agent of the same name superseded its connection, the agent waits from supersededFirst to supersededLast
// instead. Two agents of one name supersede each other whenever one connects, so each connection lasts as long as the other
// waits. Only a connection that lasts for supersededReset shows that there is no other agent any more.
const (
	supersededFirst = time.Minute
	supersededLast  = 15 * time.Minute
	supersededReset = 2 * supersededLast
)

// How long the agent waits at most when its principal says how long (RetryInfo of google/rpc/error_details.proto), and what is added to that at
// random: principals that count no further tell several agents the same time.
const (
	toldLast   = 2 * time.Minute
	toldSpread = 500 * time.Millisecond
)

// told returns how long the principal asks the agent to wait, bounded, and whether it does.
func told(err error) (wait time.Duration, is bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() && info.GetRetryDelay().AsDuration() > 0 {
			return min(info.GetRetryDelay().AsDuration(), toldLast) + rand.N(toldSpread), true //nolint:gosec // this needs no secrecy
		}
	}
	return 0, false
}

func isTold(err error) bool {
	_, is := told(err)
	return is
}

// refusedError is the end of an attempt in whose TLS handshake one side refused the other. gRPC says that it is unavailable,
// as it does of a network.
type refusedError struct{ error }

// Unwrap returns what gRPC says.
func (e refusedError) Unwrap() error { return e.error }

// retry knows how long to wait before the next attempt. Each wait is less by up to half of itself at random, so that a
// principal that restarts is not met by all its agents at once.
type retry struct {
	lost       backoff // the network is the reason
	refused    backoff // the principal is
	superseded backoff // another agent of the same name is
}

func newRetry() *retry {
	return &retry{
		lost:       backoff{next: lostFirst, first: lostFirst, last: lostLast},
		refused:    backoff{next: refusedFirst, first: refusedFirst, last: refusedLast},
		superseded: backoff{next: supersededFirst, first: supersededFirst, last: supersededLast},
	}
}

// after returns how long to wait after a connection that lasted so long and ended like this.
func (r *retry) after(lasted time.Duration, err error) time.Duration {
	if lasted >= lostReset {
		r.lost.reset()
	}
	if lasted > steady {
		r.refused.reset()
	}
	if lasted > supersededReset {
		r.superseded.reset()
	}
	if wait, is := told(err); is {
		return wait
	}
	switch {
	case errors.Is(err, errRenewed), goaway.Is(err) && lasted >= lostReset: // principals ask agents in turns
		return 0
	case superseded(err):
		return r.superseded.wait()
	case lost(err):
		return r.lost.wait()
	default:
		return r.refused.wait()
	}
}

// firstSuperseded reports whether the agent is superseded for the first time in a long while.
func (r *retry) firstSuperseded(lasted time.Duration) bool {
	return r.superseded.next == supersededFirst || lasted > supersededReset
}

// superseded reports whether a connection ended because another agent of the same name is served. That it was this very
// agent, which connected again when it took the connection for dead, nobody learns: by then the connection is closed here.
func superseded(err error) bool { return status.Code(err) == codes.Aborted }

// lost reports whether there was no principal to be reached, or is none any more: it went away, announced or not, or the
// network did. A principal that starts or shuts down, and a proxy before it that finds none, answer Unavailable themselves, so an
// answer is no reason to wait longer. Who answers that and lies gets what it would get by hanging up: an attempt every lostLast
// at most, of an agent that does nothing else over it.
func lost(err error) bool {
	if refused := (refusedError{}); errors.As(err, &refused) {
		return false
	}
	return status.Code(err) == codes.Unavailable || errors.Is(err, wire.ErrSilent)
}

// backoff is a wait that doubles.
type backoff struct{ next, first, last time.Duration }

// wait returns the wait, less up to half of it, and doubles the next one.
func (b *backoff) wait() time.Duration {
	wait := jitter(b.next)
	b.next = min(2*b.next, b.last)
	return wait
}

func (b *backoff) reset() { b.next = b.first }

// jitter returns d less up to half of it.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2) //nolint:gosec // this needs no secrecy
}
