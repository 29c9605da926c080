package wire_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

const beat = 10 * time.Second

func heard() *pb.CloudEvent {
	return &pb.CloudEvent{
		Type: "io.argoproj-labs.argocd-agent.inquiry", Data: &pb.CloudEvent_BinaryData{BinaryData: []byte("{}")},
	}
}

// beating runs a test, with a fake clock, on a stream that beats.
func beating(t *testing.T, test func(t *testing.T, c *cable, s *wire.Stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		s := wire.Open(c, "/agent", quiet())
		s.Beat(beat)
		test(t, c, s)
		s.Close()
		close(c.ended)
		s.Wait()
	})
}

// after lets time pass for as long as the timer of a fake clock takes.
func after(d time.Duration) { <-time.After(d) }

func TestQuietStreamBeats(t *testing.T) {
	beating(t, func(t *testing.T, c *cable, _ *wire.Stream) {
		after(2*beat + time.Second)
		synctest.Wait()
		require.Len(t, c.out, 2)
		require.Equal(t, "io.argoproj-labs.argocd-agent.heartbeat", (<-c.out).GetType())
	})
}

func TestBusyStreamDoesNotBeat(t *testing.T) {
	beating(t, func(t *testing.T, c *cable, s *wire.Stream) {
		for n := range uint64(10) {
			c.in <- heard() // else the peer would be taken for dead
			_, err := s.Recv(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Send(t.Context(), put(n+1)))
			after(beat - time.Second)
		}
		synctest.Wait()
		require.Len(t, c.out, 10)
	})
}

func TestSilentPeerIsTakenForDead(t *testing.T) {
	beating(t, func(t *testing.T, _ *cable, s *wire.Stream) {
		began := time.Now()
		_, err := s.Recv(t.Context())
		require.ErrorIs(t, err, wire.ErrSilent)
		require.Equal(t, 3*beat, time.Since(began))
		require.ErrorIs(t, s.Send(t.Context(), put(1)), wire.ErrSilent)
	})
}

func TestAnythingHeardIsASignOfLife(t *testing.T) {
	beating(t, func(t *testing.T, c *cable, s *wire.Stream) {
		for range 5 {
			after(3*beat - time.Second)
			c.in <- &pb.CloudEvent{Type: "of tomorrow"}
		}
		require.NoError(t, s.Send(t.Context(), put(1)))
	})
}

// Who does not read cannot say that nothing came.
func TestSlowReaderIsNotSilence(t *testing.T) {
	beating(t, func(t *testing.T, c *cable, s *wire.Stream) {
		c.in <- heard()
		after(10 * beat)
		_, err := s.Recv(t.Context())
		require.NoError(t, err)
		_, err = s.Recv(t.Context())
		require.ErrorIs(t, err, wire.ErrSilent)
	})
}

// A reader that begins late, after something has come, has not heard nothing either.
func TestBeatBeginsWhileSomethingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		s := wire.Open(c, "/agent", quiet())
		c.in <- heard()
		synctest.Wait()
		s.Beat(beat)
		after(10 * beat)
		_, err := s.Recv(t.Context())
		require.NoError(t, err)
		s.Close()
		close(c.ended)
		s.Wait()
	})
}

func TestNoHeartbeatsUnlessAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		s := wire.Open(c, "/agent", quiet())
		s.Beat(0)
		after(24 * time.Hour)
		require.NoError(t, s.Send(t.Context(), put(1)))
		synctest.Wait()
		require.Len(t, c.out, 1)
		s.Close()
		close(c.ended)
		s.Wait()
	})
}

func TestEvery(t *testing.T) {
	for milliseconds, want := range map[int64]time.Duration{
		-1: 0, 0: 0, 1: 100 * time.Millisecond, 99: 100 * time.Millisecond, 30_000: 30 * time.Second,
	} {
		require.Equal(t, want, wire.Hello{Heartbeat: milliseconds}.Every(), "%d ms", milliseconds)
	}
}
