package relay

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// raw is a frame as it came. The exchange passes frames on and has no need to know what is in them.
type raw struct{ data mem.BufferSlice }

// codec leaves raw frames as they are, and has all else to another codec.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec that an Exchange's server must have, for grpc.ForceServerCodecV2. All but the exchange's frames
// is left to another codec, which must be protobuf's.
func NewCodec(other encoding.CodecV2) encoding.CodecV2 { return codec{other} }

// Marshal gives a raw frame away.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*raw); ok {
		return r.data, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal keeps a raw frame.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*raw); ok {
		data.Ref()
		r.data = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
