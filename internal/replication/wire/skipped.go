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

// Events that cannot be decoded are logged a few at a time: a peer can send thousands in a second.
const (
	skippedLogInterval = time.Minute
	skippedLogBurst    = 5
)

// skipped are the events of one stream that are skipped. Before the peer's hello they are not logged, but returned to
// whoever waits for that: opening streams costs a peer nothing.
type skipped struct {
	logger *slog.Logger

	// Owned by the receiver.
	limit   *rate.Limiter
	leftOut int // how many were not logged since the last one that was

	mu    sync.Mutex
	begun bool  // the peer has said hello. Guarded by mu
	early int   // how many were skipped before. Guarded by mu
	last  error // of these. Guarded by mu
}

func newSkipped(logger *slog.Logger) *skipped {
	return &skipped{logger: logger, limit: rate.NewLimiter(rate.Every(skippedLogInterval), skippedLogBurst)}
}

// begin says that the peer has said hello.
func (s *skipped) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
}

// add says that an event is skipped, and why.
func (s *skipped) add(e *pb.CloudEvent, err error) {
	if s.before(err) {
		return
	}
	if errors.Is(err, errUnknown) {
		s.logger.Debug("Skipped event of unknown type", "type", clip(e.GetType()))
		return
	}
	if !s.limit.Allow() {
		s.leftOut++
		return
	}
	s.logger.Warn("Skipped event that cannot be decoded",
		"type", clip(e.GetType()), "error", clip(err.Error()), "left_out", s.leftOut)
	s.leftOut = 0
}

// before notes an event that is skipped before the hello, and reports whether it is one.
func (s *skipped) before(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.early++
		s.last = err
	}
	return !s.begun
}

// explain adds to the error of one who waited for a hello what came instead.
func (s *skipped) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == 0 {
		return err
	}
	return fmt.Errorf("%w; %d events came that cannot be decoded, the last: %s", err, s.early, clip(s.last.Error()))
}

// end says that the stream is over.
func (s *skipped) end() {
	if s.leftOut > 0 {
		s.logger.Warn("Skipped more events that cannot be decoded", "left_out", s.leftOut)
	}
}
