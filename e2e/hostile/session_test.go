package hostile_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// events is what a gRPC stream is, on either side.
type events interface {
	Send(*pb.CloudEvent) error
	Recv() (*pb.CloudEvent, error)
}

// session is a liar's end of a Sync stream. It says what it is told to, and remembers what it is answered. It keeps to the
// grammar of the protocol, since what does not decode is passed over.
type session struct {
	raw    events
	stream *wire.Stream
	over   chan struct{} // closed when the stream has ended
	ended  error         // why. Written before over is closed

	sending sync.Mutex // held while something is sent

	mu      sync.Mutex
	seq     map[converge.Facet]uint64
	waiting map[answered]chan converge.Ack
}

// answered is what an ack is for.
type answered struct {
	facet converge.Facet
	seq   uint64
}

// newSession begins to receive. cancel ends the gRPC stream.
func newSession(raw events, cancel context.CancelFunc, source string) *session {
	s := &session{
		raw: raw, stream: wire.NewStream(raw, cancel, source, slog.New(slog.DiscardHandler)), over: make(chan struct{}),
		seq: make(map[converge.Facet]uint64), waiting: make(map[answered]chan converge.Ack),
	}
	go s.stream.Run() // ends with the gRPC stream
	return s
}

// begin takes answers, after the hellos.
func (s *session) begin() {
	s.stream.Deliver(s.take, func(err error) {
		s.ended = err
		close(s.over)
	})
}

func (s *session) take(m converge.Message) {
	ack, ok := m.(converge.Ack)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting := s.waiting[answered{ack.Facet, ack.Seq}]; waiting != nil {
		delete(s.waiting, answered{ack.Facet, ack.Seq})
		waiting <- ack
	}
}

// put sends an object, and returns the answer.
func (s *session) put(t *testing.T, facet converge.Facet, key converge.Key, payload string) converge.Ack {
	t.Helper()
	return s.putAs(t, facet, key, "uid of "+string(key), payload)
}

// putAs is put, of an object with that UID.
func (s *session) putAs(t *testing.T, facet converge.Facet, key converge.Key, uid, payload string) converge.Ack {
	t.Helper()
	state := converge.State{UID: uid, Version: converge.VersionOf([]byte(payload))}
	return s.tell(t, facet, func(seq uint64) converge.Message {
		return converge.Put{Facet: facet, Key: key, Seq: seq, Object: converge.Object{State: state, Payload: []byte(payload)}}
	})
}

// remove sends a deletion, of an object with any UID if it is empty, and returns the answer.
func (s *session) remove(t *testing.T, facet converge.Facet, key converge.Key, uid string) converge.Ack {
	t.Helper()
	return s.tell(t, facet, func(seq uint64) converge.Message {
		return converge.Delete{Facet: facet, Key: key, Seq: seq, UID: uid}
	})
}

func (s *session) tell(t *testing.T, facet converge.Facet, message func(seq uint64) converge.Message) converge.Ack {
	t.Helper()
	s.mu.Lock()
	s.seq[facet]++
	seq := s.seq[facet]
	answer := make(chan converge.Ack, 1)
	s.waiting[answered{facet, seq}] = answer
	s.mu.Unlock()

	s.sending.Lock()
	err := s.stream.Send(message(seq))
	s.sending.Unlock()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	select {
	case ack := <-answer:
		return ack
	case <-s.over:
		t.Fatalf("the stream ended before the answer: %v", s.ended)
	case <-ctx.Done():
		t.Fatalf("no answer to message %d of facet %s", seq, facet)
	}
	return converge.Ack{}
}

// send sends an event as it is.
func (s *session) send(t *testing.T, e *pb.CloudEvent) {
	t.Helper()
	s.sending.Lock()
	defer s.sending.Unlock()
	require.NoError(t, s.raw.Send(e))
}

// requireRefused checks that something was refused, with a reason in which all of the texts are.
func requireRefused(t *testing.T, ack converge.Ack, texts ...string) {
	t.Helper()
	require.Equal(t, converge.Refused, ack.Code, "reason: %s", ack.Reason)
	for _, text := range texts {
		require.Contains(t, ack.Reason, text)
	}
}

// requireNotDone checks that something was not taken, for good or for now.
func requireNotDone(t *testing.T, ack converge.Ack) {
	t.Helper()
	require.NotEqual(t, converge.Done, ack.Code)
	require.NotEmpty(t, ack.Reason)
}

// requireRefusedSoon tells something again until it is refused: the other side's caches may not yet have what a row has just made.
func requireRefusedSoon(t *testing.T, tell func() converge.Ack) {
	t.Helper()
	require.Eventually(t, func() bool { return tell().Code == converge.Refused }, timeout, 10*time.Millisecond)
}

// requireDone checks that something was taken: what the liar says beside it is left out.
func requireDone(t *testing.T, ack converge.Ack) {
	t.Helper()
	require.Equal(t, converge.Done, ack.Code, "reason: %s", ack.Reason)
}
