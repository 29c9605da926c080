package wire

import (
	"context"
	"errors"
	"fmt"
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

// Stream carries a conversation over a gRPC stream. gRPC lets a server end a stream only by returning from its handler,
// and a blocked Send or Recv only then, so each has a goroutine of its own that the conversation does not wait for:
// they end when the gRPC stream does, and [Stream.Wait] waits for them.
type Stream struct {
	raw    raw
	source string
	gaps   *gaps // what is passed over

	out    chan any      // messages to send; never closed
	in     chan any      // messages received; never closed
	broken chan struct{} // closed when nothing can be sent any more
	done   chan struct{} // closed when the stream is of no more use
	once   sync.Once
	err    error // why. Written before done is closed
	unsent error // why something could not be sent, if that was its own fault. Written by write
	ended  error // what gRPC said at the end, nil if nobody was listening. Written by read

	beat  chan time.Duration // sets the interval between heartbeats
	pumps sync.WaitGroup

	mu       sync.Mutex
	limit    time.Duration // how long the peer may be silent; 0 is for ever. Guarded by mu
	watchdog *time.Timer   // ends the stream then; nil if it may be silent. Guarded by mu
	waiting  bool          // for the peer. Guarded by mu
}

var _ converge.Conn = (*Stream)(nil)

// silence is how many heartbeats may be missing before the peer is taken for dead.
const silence = 3

// ErrSilent means that nothing was heard from the peer for several heartbeats.
var ErrSilent = errors.New("nothing was heard from the peer for several heartbeats")

// errClosed means that this side closed the stream.
var errClosed = errors.New("the stream is closed")

// Open begins to carry messages over a gRPC stream. source is the CloudEvents source of what is sent, for example
// "/agents/a". The caller closes the stream, ends the gRPC stream, and then may wait for it.
func Open(stream raw, source string, logger *slog.Logger) *Stream {
	s := &Stream{
		raw: stream, source: source, gaps: newGaps(logger),
		out: make(chan any), in: make(chan any), broken: make(chan struct{}), done: make(chan struct{}),
		beat: make(chan time.Duration, 1),
	}
	s.pumps.Go(s.write)
	s.pumps.Go(s.read)
	return s
}

// Close makes every other method return. It does not end the gRPC stream.
func (s *Stream) Close() { s.fail(errClosed) }

// Wait returns when nothing uses the gRPC stream any more.
func (s *Stream) Wait() { s.pumps.Wait() }

// Ended closes the stream and returns what gRPC says of the end, or nil if it was not asked. It waits for that, so the
// gRPC stream must have ended. What the other methods return may be less than this, such as that a context has ended.
func (s *Stream) Ended() error {
	s.Close()
	s.Wait()
	if s.unsent != nil {
		return s.unsent
	}
	return s.ended
}

// Greet sends a Hello.
func (s *Stream) Greet(ctx context.Context, h Hello) error { return s.send(ctx, h) }

// Greeting waits for the peer's Hello, which must come first. Its error tells of what came instead and was passed over.
func (s *Stream) Greeting(ctx context.Context) (Hello, error) {
	m, err := s.recv(ctx)
	if err != nil {
		return Hello{}, s.gaps.explain(err)
	}
	h, ok := m.(Hello)
	if !ok {
		return Hello{}, fmt.Errorf("the peer began with %T instead of a hello", m)
	}
	return h, nil
}

// Beat sends a heartbeat whenever nothing else was sent for so long, and has the stream fail when nothing is heard from
// the peer for three times as long. It is called once, if at all.
func (s *Stream) Beat(every time.Duration) {
	if every <= 0 {
		return
	}
	s.beat <- every
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = silence * every
	s.watchdog = time.AfterFunc(s.limit, func() { s.fail(ErrSilent) })
	if !s.waiting {
		s.watchdog.Stop()
	}
}

// listen says whether this side waits for the peer, whose silence counts only then.
func (s *Stream) listen(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = waiting
	switch {
	case s.watchdog == nil:
	case waiting:
		s.watchdog.Reset(s.limit)
	default:
		s.watchdog.Stop()
	}
}

// Send sends a message of a conversation.
func (s *Stream) Send(ctx context.Context, m converge.Message) error { return s.send(ctx, m) }

// Recv receives a message of a conversation.
func (s *Stream) Recv(ctx context.Context) (converge.Message, error) {
	for {
		m, err := s.recv(ctx)
		if err != nil {
			return nil, err
		}
		if message, ok := m.(converge.Message); ok {
			return message, nil
		}
	}
}

func (s *Stream) send(ctx context.Context, m any) error {
	select {
	case s.out <- m:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return s.err
	}
}

func (s *Stream) recv(ctx context.Context) (any, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.done:
		return nil, s.err
	}
}

func (s *Stream) fail(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.done)
		s.listen(false)
	})
}

// write is the only sender on the gRPC stream.
func (s *Stream) write() {
	var every time.Duration
	idle := time.NewTimer(time.Hour)
	idle.Stop()
	defer idle.Stop()
	for id := uint64(1); ; id++ {
		var m any
		select {
		case <-s.done:
			return
		case every = <-s.beat:
			idle.Reset(every)
			continue
		case <-idle.C:
			m = heartbeat{}
		case m = <-s.out:
		}
		e, err := encode(m)
		if err != nil {
			s.fail(err)
			return
		}
		e.Id, e.Source = strconv.FormatUint(id, 10), s.source
		if err := s.raw.Send(e); err != nil {
			if ours(err) {
				s.unsent = err
				s.fail(err)
			}
			// The reader learns why; this says only that the stream is over.
			close(s.broken)
			return
		}
		if every > 0 {
			idle.Reset(every)
		}
	}
}

// ours tells whether an error of Send is about what is sent, of which a reader learns nothing.
func ours(err error) bool {
	switch status.Code(err) {
	case codes.Internal, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// read is the only receiver on the gRPC stream.
func (s *Stream) read() {
	defer s.gaps.end()
	for {
		s.listen(true)
		e, err := s.raw.Recv()
		s.listen(false)
		if err != nil {
			s.ended = err
			s.fail(err)
			return
		}
		m, err := decode(e)
		if err != nil {
			s.gaps.pass(e, err)
			continue
		}
		if _, ok := m.(Hello); ok {
			s.gaps.begin()
		}
		select {
		case s.in <- m:
		case <-s.broken: // whoever is to take this may wait to send first: the next Recv tells that he waits in vain
		case <-s.done:
			return
		}
	}
}
