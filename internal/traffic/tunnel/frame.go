package tunnel

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
)

const (
	// maxData is how much one frame carries, in bytes.
	maxData = 64 << 10
	// MaxFrame bounds a whole frame, in bytes. Larger ones close their connection.
	MaxFrame = maxData + 4<<10
	// maxWaste is how much of a message may be kept for the sake of the data in it, in bytes: it is not counted.
	maxWaste = 256
)

// frame is a tunnelv1.Frame whose data stay in gRPC's buffers. Otherwise a connection would spend most of its time in copies
// and garbage collection.
type frame struct {
	data   mem.BufferSlice // whoever has the frame frees them
	end    tunnelv1.End
	reason string
	read   uint64
}

// frames is a codec for frames alone, as protobuf encodes them. It is for the streams of tunnel connections.
type frames struct{}

var _ encoding.CodecV2 = frames{}

// Name implements encoding.CodecV2. It is the name of protobuf's own codec, because the encoding is the same.
func (frames) Name() string { return "proto" }

// dataTag is the first byte of a frame with data.
const dataTag = 1<<3 | byte(protowire.BytesType)

// Marshal implements encoding.CodecV2. gRPC frees the frame's data.
func (frames) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("cannot encode a %T: want a frame", v)
	}
	var message mem.BufferSlice
	if size := f.data.Len(); size > 0 {
		message = append(message, mem.SliceBuffer(protowire.AppendVarint([]byte{dataTag}, uint64(size))))
		message = append(message, f.data...)
	}
	if f.end != tunnelv1.End_END_UNSPECIFIED || f.read > 0 {
		rest, err := proto.Marshal(&tunnelv1.Frame{End: f.end, Reason: f.reason, Read: f.read})
		if err != nil {
			return nil, err
		}
		message = append(message, mem.SliceBuffer(rest))
	}
	return message, nil
}

// Unmarshal implements encoding.CodecV2. It does not copy data at the beginning of a message, which is where protobuf's
// encoders put them.
func (frames) Unmarshal(message mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("cannot decode a frame into a %T", v)
	}
	begin, end, err := dataOf(message)
	if err != nil {
		return err
	}
	var rest tunnelv1.Frame
	if end < message.Len() {
		tail := part(message, end, message.Len())
		defer tail.Free()
		if err := proto.Unmarshal(tail.Materialize(), &rest); err != nil {
			return err
		}
	}
	f.end, f.reason, f.read = rest.GetEnd(), rest.GetReason(), rest.GetRead()
	if data := rest.GetData(); len(data) > 0 { // of an encoder with an order of its own
		f.data = mem.BufferSlice{mem.SliceBuffer(data)}
		return nil
	}
	f.data = part(message, begin, end)
	if message.Len()-(end-begin) > maxWaste {
		own := mem.SliceBuffer(f.data.Materialize())
		f.data.Free()
		f.data = mem.BufferSlice{own}
	}
	return nil
}

// dataOf returns where the data are that a message begins with. They are empty, at 0, if it begins with something else.
func dataOf(message mem.BufferSlice) (begin, end int, err error) {
	r := message.Reader()
	defer func() { _ = r.Close() }() // which cannot fail
	if tag, err := r.ReadByte(); err != nil || tag != dataTag {
		return 0, 0, nil // which has none
	}
	size, err := binary.ReadUvarint(r)
	if err != nil || size > uint64(r.Remaining()) { //nolint:gosec // not negative
		return 0, 0, fmt.Errorf("a frame of %d bytes announces more data than it has", message.Len())
	}
	begin = message.Len() - r.Remaining()
	return begin, begin + int(size), nil //nolint:gosec // which is small
}

// part returns the bytes from begin to end, without a copy. The caller frees them.
func part(message mem.BufferSlice, begin, end int) mem.BufferSlice {
	var taken mem.BufferSlice
	for _, buffer := range message {
		size := buffer.Len()
		if from, to := max(begin, 0), min(end, size); from < to {
			taken = append(taken, buffer.Slice(from, to))
		}
		begin, end = begin-size, end-size
	}
	return taken
}
