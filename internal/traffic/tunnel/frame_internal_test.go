package tunnel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
)

// split returns bytes in buffers of random sizes, as a network delivers them.
func split(b []byte) mem.BufferSlice {
	var all mem.BufferSlice
	for len(b) > 0 {
		n := 1 + rand.IntN(len(b))
		all = append(all, mem.Copy(b[:n], mem.DefaultBufferPool()))
		b = b[n:]
	}
	return all
}

// The codec agrees with protobuf's own, in both directions.
func TestFramesAreProtobuf(t *testing.T) {
	for name, want := range map[string]*tunnelv1.Frame{
		"empty":             {},
		"data":              {Data: []byte("hello")},
		"much":              {Data: bytes.Repeat([]byte("x"), maxData)},
		"an end":            {End: tunnelv1.End_END_WRITE},
		"an end of data":    {Data: []byte("x"), End: tunnelv1.End_END_CLOSE},
		"an end and reason": {Data: bytes.Repeat([]byte("x"), 1<<10), End: tunnelv1.End_END_ABORT, Reason: "gone", Read: 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			f := &frame{end: want.GetEnd(), reason: want.GetReason(), read: want.GetRead()}
			if len(want.GetData()) > 0 {
				f.data = split(want.GetData())
			}
			message, err := frames{}.Marshal(f)
			require.NoError(t, err)
			var got tunnelv1.Frame
			require.NoError(t, proto.Unmarshal(message.Materialize(), &got))
			require.True(t, proto.Equal(want, &got))

			text, err := proto.Marshal(want)
			require.NoError(t, err)
			requireFrame(t, text, want)
		})
	}
}

func requireFrame(t *testing.T, text []byte, want *tunnelv1.Frame) {
	t.Helper()
	message := split(text)
	var f frame
	require.NoError(t, frames{}.Unmarshal(message, &f))
	message.Free()
	require.True(t, bytes.Equal(want.GetData(), f.data.Materialize()), "%d bytes, want %d", f.data.Len(), len(want.GetData()))
	require.Equal(t, want.GetEnd(), f.end)
	require.Equal(t, want.GetReason(), f.reason)
	require.Equal(t, want.GetRead(), f.read)
	f.data.Free()
}

// Encoders may write fields in any order, and unknown ones.
func TestFramesOfOtherEncoders(t *testing.T) {
	want := &tunnelv1.Frame{Data: []byte("hello"), End: tunnelv1.End_END_WRITE}
	text := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), uint64(want.GetEnd()))
	text = protowire.AppendBytes(protowire.AppendTag(text, 1, protowire.BytesType), want.GetData())
	text = protowire.AppendString(protowire.AppendTag(text, 99, protowire.BytesType), "unknown")
	requireFrame(t, text, want)
}

// FuzzFrames looks for a message that is decoded differently from protobuf's codec. Messages with a field twice, which
// encoders do not write, may be decoded in any way.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x0a\x05hello\x10\x01"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want tunnelv1.Frame
		expected := proto.Unmarshal(text, &want)
		message := split(text)
		defer message.Free()
		var got frame
		err := frames{}.Unmarshal(message, &got)
		defer got.data.Free()
		if again, _ := proto.Marshal(&want); expected != nil || !bytes.Equal(text, again) {
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(want.GetData(), got.data.Materialize()))
		require.Equal(t, want.GetEnd(), got.end)
		require.Equal(t, want.GetReason(), got.reason)
		require.Equal(t, want.GetRead(), got.read)
	})
}
