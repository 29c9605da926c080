package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	// It registers the codec that is wrapped.
	_ "google.golang.org/grpc/encoding/proto"
)

// Codec is gRPC's protobuf codec, but for one thing: bytes that are no such message decode to an empty one, which is
// then passed over like any event that is not understood. gRPC would end the stream, and the peer, which sends what it
// has to send, would send the same bytes on the next one, and so on for ever.
type Codec struct{ encoding.CodecV2 }

// NewCodec returns the codec, for grpc.ForceServerCodecV2 and grpc.ForceCodecV2.
func NewCodec() Codec { return Codec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes a message.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	proto.Reset(m)
	return nil
}
