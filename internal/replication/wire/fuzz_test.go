package wire_test

import (
	"testing"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// Whatever bytes a peer sends, the stream goes on; and what they are understood as is what would be understood again if it
// were passed on.
func FuzzReceive(f *testing.F) {
	for _, m := range messages() {
		data, err := proto.Marshal(encoded(f, m))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		e := &pb.CloudEvent{}
		require.NoError(t, wire.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, e))
		if first, ok := received(t, e); ok {
			second, ok := received(t, encoded(t, first))
			require.True(t, ok)
			require.Equal(t, first, second)
		}
	})
}

// last is the message by which the end of what was received is known.
const last = converge.Key("this is the last")

// received returns what an event is understood as, and whether it is at all.
func received(tb testing.TB, e *pb.CloudEvent) (converge.Message, bool) {
	tb.Helper()
	c := newCable()
	s := c.open("/principal", quiet())
	defer c.end()
	end := encoded(tb, converge.Delete{Key: last, Seq: 1})
	go func() {
		for _, e := range []*pb.CloudEvent{e, end} {
			select {
			case c.in <- e:
			case <-c.ended:
			}
		}
	}()
	m, err := s.Recv()
	require.NoError(tb, err)
	d, ok := m.(converge.Delete)
	return m, !ok || d.Key != last
}

// encoded returns the event of a message.
func encoded(tb testing.TB, m converge.Message) *pb.CloudEvent {
	tb.Helper()
	c := newCable()
	s := c.open("/principal", quiet())
	defer c.end()
	require.NoError(tb, s.Send(m))
	return <-c.out
}
