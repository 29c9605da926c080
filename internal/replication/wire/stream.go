package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// raw is what gRPC's client and server streams have in common.
type raw interface {
	Send(*pb.CloudEvent) error
	Recv() (*pb.CloudEvent, error)
}

// Stream carries a session over a gRPC stream. One goroutine, that of Run, receives, and one sends.
//
// gRPC lets a server end a stream only by returning from its handler: a Recv that is broken off any other way would tell the
// client so instead of the reason. So Run may outlive the handler by a moment, and the handler does not wait for it.
type Stream struct {
	raw     raw
	cancel  context.CancelFunc // cancels the gRPC stream
	source  string
	skipped *skipped
	first   chan received // of capacity one
	handler chan func(converge.Message)
	closing chan struct{} // closed by Close
	over    chan struct{} // closed when Run has returned
	ended   error         // what gRPC said at the end, nil if nobody was receiving. Written before over is closed

	// Owned by the sender.
	id     uint64
	unsent error // why a message could not be sent, if that was its own fault

	mu       sync.Mutex
	closed   error         // why the stream was closed; nil while it was not. Guarded by mu, as are all fields below
	onEnd    func(error)   // is called at the end; nil while nobody waits for it
	sending  bool          // a Send is under way
	abort    *time.Timer   // cancels the gRPC stream if that Send blocks; nil while the stream is not closed
	limit    time.Duration // how long the peer may be silent; 0 is for ever
	watchdog *time.Timer   // closes the stream then; nil if it may be silent
	waiting  bool          // for the peer
}

// received is what was received, or why nothing was.
type received struct {
	message any
	err     error
}

var _ converge.Conn = (*Stream)(nil)

// silence is how many heartbeats may be missing before the peer is taken for dead.
const silence = 3

// sendTimeout is how long a Send that is under way may take once the stream is closed.
const sendTimeout = time.Second

// ErrSilent means that nothing was received from the peer for several heartbeats.
var ErrSilent = errors.New("nothing was received from the peer for several heartbeats")

// errClosed means that this side closed the stream.
var errClosed = errors.New("the stream is closed")

// NewStream returns a stream over a gRPC stream, whose context cancel ends. source is the CloudEvents source of what is
// sent, for example "/agents/a".
func NewStream(stream raw, cancel context.CancelFunc, source string, logger *slog.Logger) *Stream {
	return &Stream{
		raw: stream, cancel: cancel, source: source, skipped: newSkipped(logger), first: make(chan received, 1),
		handler: make(chan func(converge.Message), 1), closing: make(chan struct{}), over: make(chan struct{}),
	}
}

// Run receives until the gRPC stream ends: a hello first, and then what Deliver delivers.
func (s *Stream) Run() {
	defer close(s.over)
	m, err := s.recv()
	s.first <- received{m, err}
	if err != nil {
		return
	}
	select {
	case <-s.closing:
	case handle := <-s.handler:
		for {
			m, err := s.Recv()
			if err != nil {
				s.Close(err)
				return
			}
			handle(m)
		}
	}
}

// Deliver implements [converge.Conn]. It is called once, after the hello.
func (s *Stream) Deliver(handle func(converge.Message), ended func(error)) {
	s.mu.Lock()
	s.onEnd = ended
	closed := s.closed
	s.mu.Unlock()
	if closed != nil {
		ended(closed)
		return
	}
	s.handler <- handle
}

// Close makes Send fail, and the stream end, with this error. Only the first call counts. The gRPC stream is cancelled only if
// a Send blocks, which would not end otherwise. Else the caller ends it, so that the peer learns the reason.
func (s *Stream) Close(err error) {
	s.mu.Lock()
	if s.closed != nil {
		s.mu.Unlock()
		return
	}
	s.closed = err
	onEnd := s.onEnd
	if s.sending {
		s.abort = time.AfterFunc(sendTimeout, s.cancel)
	}
	s.mu.Unlock()
	close(s.closing)
	if onEnd != nil {
		onEnd(err)
	}
}

// Ended closes the stream and returns what gRPC says of the end, nil if nobody was receiving. It waits for that, so the gRPC
// stream must have ended. Other errors may say less, such as that a context has ended.
func (s *Stream) Ended() error {
	s.Close(errClosed)
	<-s.over
	if s.unsent != nil {
		return s.unsent
	}
	return s.ended
}

// SendHello sends a Hello.
func (s *Stream) SendHello(h Hello) error { return s.send(h) }

// RecvHello waits for the peer's Hello, which Run receives, and which must come first. Its error says what came instead and
// was skipped.
func (s *Stream) RecvHello(ctx context.Context) (Hello, error) {
	var r received
	select {
	case r = <-s.first:
	case <-ctx.Done():
		r.err = context.Cause(ctx)
	}
	if r.err != nil {
		return Hello{}, s.skipped.explain(r.err)
	}
	h, ok := r.message.(Hello)
	if !ok {
		return Hello{}, fmt.Errorf("the peer began with %T instead of a hello", r.message)
	}
	return h, nil
}

// ExpectHeartbeats closes the stream when nothing is received from the peer for three heartbeat intervals; 0 is for ever.
// It is called once, if at all.
func (s *Stream) ExpectHeartbeats(every time.Duration) {
	if every <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = silence * every
	s.watchdog = time.AfterFunc(s.limit, func() { s.Close(ErrSilent) })
	if !s.waiting {
		s.watchdog.Stop()
	}
}

// setWaiting says whether this side waits for the peer, whose silence counts only then.
func (s *Stream) setWaiting(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = waiting
	switch {
	case s.watchdog == nil:
	case waiting && s.closed == nil:
		s.watchdog.Reset(s.limit)
	default:
		s.watchdog.Stop()
	}
}

// Send sends a message of a session.
func (s *Stream) Send(m converge.Message) error { return s.send(m) }

// Recv receives a message of a session. It is for one who does without Run.
func (s *Stream) Recv() (converge.Message, error) {
	for {
		m, err := s.recv()
		if err != nil {
			return nil, err
		}
		if message, ok := m.(converge.Message); ok {
			return message, nil
		}
	}
}

func (s *Stream) send(m any) error {
	e, err := encode(m)
	if err != nil {
		return err
	}
	s.id++
	e.Id, e.Source = strconv.FormatUint(s.id, 10), s.source
	if err := s.setSending(true); err != nil {
		return err
	}
	err = s.raw.Send(e)
	closed := s.setSending(false)
	switch {
	case err == nil:
		return nil
	case closed != nil:
		return closed
	case isOwnFault(err):
		s.unsent = err
		return err
	default:
		return io.EOF // Recv returns why
	}
}

// setSending says whether a Send is under way, and returns why the stream was closed, nil if it was not.
func (s *Stream) setSending(sending bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = sending
	if s.abort != nil {
		s.abort.Stop()
	}
	return s.closed
}

// isOwnFault reports whether an error of Send is about what is sent, of which Recv learns nothing.
func isOwnFault(err error) bool {
	switch status.Code(err) {
	case codes.Internal, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// recv receives a message or a Hello. It skips what cannot be decoded.
func (s *Stream) recv() (any, error) {
	for {
		s.setWaiting(true)
		e, err := s.raw.Recv()
		s.setWaiting(false)
		if err != nil {
			s.ended = err
			s.skipped.end()
			return nil, err
		}
		m, err := decode(e)
		if err != nil {
			s.skipped.add(e, err)
			continue
		}
		if _, ok := m.(Hello); ok {
			s.skipped.begin()
		}
		return m, nil
	}
}
