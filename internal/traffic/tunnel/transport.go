package tunnel

import "google.golang.org/grpc"

// streamWindow is HTTP/2's own, of a stream, in bytes. The ends of a conversation mind how much is under way between them, so this one
// is not to be felt: gRPC opens it again when a quarter was read, so three quarters at least are open, more than an inbox
// takes. Left to itself gRPC would let it grow to 16 MiB, and the principal could have to keep as much. The connection's
// own window, of two streams', gRPC opens when something comes in, whoever reads it.
const streamWindow = 2 * window

// ServerOptions returns how a principal carries conversations.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(2 * streamWindow)}
}

// DialOptions returns how those who connect to a principal carry conversations.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(2 * streamWindow)}
}

// callOptions are those of a conversation's stream.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.ForceCodecV2(frames{}), grpc.MaxCallRecvMsgSize(MaxFrame)}
}
