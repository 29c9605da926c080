package front

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/socket"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

const (
	firstBuffer = 4 << 10  // what a client's commands are read into at first
	usualBuffer = 64 << 10 // and what is kept of a larger one
	replyBuffer = 64 << 10
	// gather is how much of several small replies is written together.
	gather = 16 << 10
	// moment is how long a client that is alone looks out for what it waits for, before it goes to sleep.
	moment = 100 * time.Microsecond
	// few is how many commands at once are sent together with those of others.
	few = 64
	// apart is for how many turns a client goes its own way that is slow to take large replies: there, Redis waits for it.
	apart = 100
	// inARow is how often a client must have come, and nobody else, to count as alone.
	inARow = 8
)

// Why a client is disconnected.
var (
	errQuit    = errors.New("the client said goodbye")
	errUnasked = errors.New("the hub's Redis said something unasked")
	errOverrun = errors.New("the client does not read what it is sent")
)

// session is one client.
type session struct {
	server *Server
	conn   net.Conn
	socket *socket.Socket // nil when it has none

	// Owned by run.
	scanner    *resp.Scanner
	in         []byte // what was read: a buffer, of which start to end is in use
	start, end int
	large      int // how much of the server's large is held for the buffer
	out        []byte
	steps      []step
	words      [][]byte // of commands in steps

	own      net.Conn // to the hub's Redis, for this client alone; nil until needed
	ownSoon  *socket.Socket
	keepOwn  func() bool // has the end of the context not close it
	place    upstream.Place
	identity upstream.Identity
	accepted bool      // the hub's Redis has accepted the client as somebody
	asked    time.Time // when it said so last
	queueing bool      // Redis has agreed to MULTI
	watching bool      // WATCH was said
	sticky   bool      // the connection has something that others have not
	apart    int       // turns for which it does not share
	row      int       // how often the client came again before anybody else did
	waiting  bool      // for the shared connection
	stream   *stream

	answered chan struct{} // by the shared connection, all that was asked. Of capacity one
	late     late
}

func newSession(server *Server, conn net.Conn) *session {
	s := &session{
		server: server, conn: conn, socket: socket.New(conn), scanner: resp.NewScanner(server.limits),
		in: make([]byte, firstBuffer), answered: make(chan struct{}, 1),
	}
	s.late.moved.L = &s.late.mu
	return s
}

// run serves the client until it goes, does what it may not, or the context ends.
func (s *session) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	err := s.serve(ctx)
	_ = s.settle(ctx) // what follows is of no use to one who is gone already
	if protocol := resp.ProtocolError(""); errors.As(err, &protocol) {
		_ = s.say(redcon.AppendError(nil, "ERR "+protocol.Error()))
		_ = s.flush()
	}
	s.part()
	s.release()
}

// release gives back all that the client had.
func (s *session) release() {
	_ = s.conn.Close()
	if s.own != nil {
		_ = s.own.Close()
		s.keepOwn()
	}
	if s.stream != nil {
		s.stream.close()
	}
	if s.place.Entered() {
		s.place.Leave()
	}
	s.server.large.Add(-int64(s.large))
}

func (s *session) serve(ctx context.Context) error {
	for {
		found, wrong := s.collect()
		var err error
		if found {
			err = s.answer(ctx)
		}
		if err == nil {
			err = wrong
		}
		if err == nil && !found {
			err = s.read(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// read reads more of what the client sends.
func (s *session) read(ctx context.Context) error {
	if s.start == s.end {
		s.start, s.end = 0, 0
		s.shrink()
	}
	if s.end == len(s.in) {
		if err := s.room(ctx); err != nil {
			return err
		}
	}
	n, err := s.readSoon(s.conn, s.socket, s.in[s.end:])
	s.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// alone reports whether the client seems to be the only one that has something to ask.
func (s *session) alone() bool { return s.row >= inARow && s.server.latest.Load() == s }

// room makes room behind what was read.
func (s *session) room(ctx context.Context) error {
	if s.start > 0 {
		s.end = copy(s.in, s.in[s.start:s.end])
		s.start = 0
		return nil
	}
	size := 2 * len(s.in)
	if size > usualBuffer {
		// What is not accepted may not have us keep much; Redis does the same.
		if err := s.settle(ctx); err != nil {
			return err
		}
		if refusal, err := s.accept(ctx); err != nil || refusal != nil {
			return errors.Join(err, resp.ProtocolError("unauthenticated bulk length"))
		}
		if s.server.large.Add(int64(size-s.large)) > int64(s.server.options.Limits.Large) {
			s.server.large.Add(-int64(size - s.large))
			return resp.ProtocolError("clients send too much at once, try again later")
		}
		s.large = size
	}
	bigger := make([]byte, size)
	s.end = copy(bigger, s.in[:s.end])
	s.in = bigger
	return nil
}

// shrink gives back what a large command needed.
func (s *session) shrink() {
	if s.large > 0 {
		s.server.large.Add(-int64(s.large))
		s.large = 0
		s.in = make([]byte, usualBuffer)
	}
}

// answer has the collected commands answered, in order.
func (s *session) answer(ctx context.Context) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	if s.server.latest.Load() != s {
		s.server.latest.Store(s)
		s.row = 0
	} else if s.row < inARow {
		s.row++
	}
	if one := &s.steps[0]; s.row < inARow && len(s.steps) == 1 && one.count <= few && one.kind == toHub && one.shares && s.shareable(len(one.raw)) {
		if shared, err := s.place.Shared(ctx); err == nil && shared.Submit(one.raw, one.count, s) {
			s.server.metrics.passed.Add(float64(one.count))
			s.waiting = true
			return nil // Deliver or Fail say when it is over
		}
	}
	s.ahead()
	for i := range s.steps {
		if err := s.take(ctx, &s.steps[i]); err != nil {
			_ = s.flush()
			return err
		}
	}
	return s.flush()
}

// shareable reports whether the client's next commands may go over a shared connection. Those of one who is not accepted may
// not: Redis disconnects such a client for a command of more than a few words, or of large ones.
func (s *session) shareable(size int) bool {
	if s.apart > 0 {
		s.apart--
		return false
	}
	if !s.accepted || s.socket == nil || s.stream != nil || s.queueing || s.watching || s.sticky || size > replyBuffer {
		return false
	}
	if !s.place.Entered() {
		s.place = s.server.pool.Enter(s.identity)
	}
	return true
}

// become notes as whom the client is served from now on.
func (s *session) become(id upstream.Identity) {
	s.identity = id
	if s.place.Entered() {
		s.place.Leave()
		s.place = upstream.Place{}
	}
}

// say adds to what the client is to be told.
func (s *session) say(p []byte) error {
	if s.stream != nil {
		return s.stream.out.put(p)
	}
	if len(s.out)+len(p) <= gather {
		s.out = append(s.out, p...)
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	if len(p) <= gather {
		s.out = append(s.out, p...)
		return nil
	}
	return s.write(p)
}

// flush writes what the client is to be told.
func (s *session) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	err := s.write(s.out)
	s.out = s.out[:0]
	return err
}
