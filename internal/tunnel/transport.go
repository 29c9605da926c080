package tunnel

import "google.golang.org/grpc"

// window is HTTP/2's own, of a stream, in bytes. The ends of a conversation mind how much is under way between them; this one
// is only not to be in their way, and bounds what an end can do that does not. It is opened again when a quarter was read.
const window = 2 * mostWindow

// ServerOptions returns how a principal carries conversations.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(2 * window)}
}

// DialOptions returns how those who connect to a principal carry conversations.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(2 * window)}
}

// callOptions are those of a conversation's stream.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.ForceCodecV2(frames{}), grpc.MaxCallRecvMsgSize(MaxFrame)}
}
