package wire_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

const heartbeat = 10 * time.Second

// anEvent is an event that decodes to a message.
func anEvent() *pb.CloudEvent {
	return &pb.CloudEvent{
		Type: "io.argoproj-labs.argocd-agent.bucket-request", Data: &pb.CloudEvent_BinaryData{BinaryData: []byte("{}")},
	}
}

// delivery is a stream that delivers, over a cable.
type delivery struct {
	*wire.Stream
	c       *cable
	proceed chan struct{} // a message that was received is held until something is sent here
	ended   chan error
}

// delivering runs a test, with a fake clock, on a stream that delivers.
func delivering(t *testing.T, test func(t *testing.T, d delivery)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		c := newCable()
		d := delivery{c.open("/agent", quiet()), c, make(chan struct{}), make(chan error, 1)}
		go func() { c.in <- nonsense("hello", "{}") }()
		_, err := recvHello(t, d.Stream, c.end)
		require.NoError(t, err)
		d.Deliver(func(converge.Message) { <-d.proceed }, func(err error) { d.ended <- err })
		test(t, d)
	})
}

// after lets time pass for as long as the timer of a fake clock takes.
func after(d time.Duration) { <-time.After(d) }

func TestHeartbeatIsSent(t *testing.T) {
	require.Equal(t, "io.argoproj-labs.argocd-agent.heartbeat", encoded(t, converge.Heartbeat{}).GetType())
}

func TestSilentPeerIsTakenForDead(t *testing.T) {
	delivering(t, func(t *testing.T, d delivery) {
		after(10 * heartbeat) // silence counts from when heartbeats are expected
		began := time.Now()
		d.ExpectHeartbeats(heartbeat)
		require.ErrorIs(t, <-d.ended, wire.ErrSilent)
		require.Equal(t, 3*heartbeat, time.Since(began))
		require.ErrorIs(t, d.Send(put(1)), wire.ErrSilent)
	})
}

// Also a side that is about to send learns that nobody is there.
func TestSilentPeerEndsASendThatBlocks(t *testing.T) {
	delivering(t, func(t *testing.T, d delivery) {
		d.c.out = nil
		d.ExpectHeartbeats(heartbeat)
		require.ErrorIs(t, d.Send(put(1)), wire.ErrSilent)
	})
}

func TestAnyMessageResetsHeartbeatTimeout(t *testing.T) {
	delivering(t, func(t *testing.T, d delivery) {
		d.ExpectHeartbeats(heartbeat)
		for range 5 {
			after(3*heartbeat - time.Second)
			d.c.in <- &pb.CloudEvent{Type: "of tomorrow"}
		}
		require.NoError(t, d.Send(put(1)))
	})
}

// Who does not receive cannot say that nothing came.
func TestSlowReaderIsNotSilence(t *testing.T) {
	delivering(t, func(t *testing.T, d delivery) {
		d.c.in <- anEvent()
		synctest.Wait()
		d.ExpectHeartbeats(heartbeat)
		after(10 * heartbeat)
		require.Empty(t, d.ended)
		d.proceed <- struct{}{}
		require.ErrorIs(t, <-d.ended, wire.ErrSilent)
	})
}

func TestPeerWithoutHeartbeatsMayBeSilent(t *testing.T) {
	delivering(t, func(t *testing.T, d delivery) {
		d.ExpectHeartbeats(0)
		after(24 * time.Hour)
		require.Empty(t, d.ended)
		require.NoError(t, d.Send(put(1)))
	})
}

func TestEvery(t *testing.T) {
	for milliseconds, want := range map[int64]time.Duration{
		-1: 0, 0: 0, 1: 100 * time.Millisecond, 99: 100 * time.Millisecond, 30_000: 30 * time.Second,
	} {
		require.Equal(t, want, wire.Hello{Heartbeat: milliseconds}.Every(), "%d ms", milliseconds)
	}
}
