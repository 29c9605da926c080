package relay

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// rawFrame is an encoded frame. The relay does not need to know what is in it.
type rawFrame struct{ data mem.BufferSlice }

// codec leaves raw frames as they are, and leaves everything else to another codec.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec that a Relay's server must have, for grpc.ForceServerCodecV2. It leaves everything but the
// relay's frames to another codec, which must be protobuf's.
func NewCodec(other encoding.CodecV2) encoding.CodecV2 { return codec{other} }

// Marshal returns a raw frame, which gRPC frees.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*rawFrame); ok {
		return r.data, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal keeps a reference to the message as a raw frame.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*rawFrame); ok {
		data.Ref()
		r.data = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
