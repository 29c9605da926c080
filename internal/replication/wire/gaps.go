package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"golang.org/x/time/rate"
)

// Events that cannot be understood are logged a few at a time: a peer can send thousands in a second.
const (
	gapLogInterval = time.Minute
	gapLogBurst    = 5
)

// gaps are the events of one stream that are passed over. Until the peer has said hello they are not logged, but told to
// whoever waits for that: opening streams costs a peer nothing.
type gaps struct {
	logger *slog.Logger

	// Owned by the reader of the stream.
	limit   *rate.Limiter
	leftOut int // how many were not logged since the last one that was

	mu    sync.Mutex
	begun bool  // the peer has said hello. Guarded by mu
	early int   // how many were passed over before. Guarded by mu
	last  error // of these. Guarded by mu
}

func newGaps(logger *slog.Logger) *gaps {
	return &gaps{logger: logger, limit: rate.NewLimiter(rate.Every(gapLogInterval), gapLogBurst)}
}

// begin says that the peer has said hello.
func (g *gaps) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun = true
}

// pass says that an event is passed over, and why.
func (g *gaps) pass(e *pb.CloudEvent, err error) {
	if g.before(err) {
		return
	}
	if errors.Is(err, errUnknown) {
		g.logger.Debug("Pass over an event of a type that this build does not know", "type", clip(e.GetType()))
		return
	}
	if !g.limit.Allow() {
		g.leftOut++
		return
	}
	g.logger.Warn("Pass over an event that cannot be understood",
		"type", clip(e.GetType()), "error", clip(err.Error()), "left_out", g.leftOut)
	g.leftOut = 0
}

// before notes an event that is passed over before the hello, and reports whether it is one.
func (g *gaps) before(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.begun {
		g.early++
		g.last = err
	}
	return !g.begun
}

// explain adds to the error of one who waited for a hello what came instead.
func (g *gaps) explain(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.early == 0 {
		return err
	}
	return fmt.Errorf("%w; %d events came that cannot be understood, the last: %s", err, g.early, clip(g.last.Error()))
}

// end says that the stream is over.
func (g *gaps) end() {
	if g.leftOut > 0 {
		g.logger.Warn("Passed over more events that cannot be understood", "left_out", g.leftOut)
	}
}
