package tunnel

import "google.golang.org/grpc"

// The flow of connections that carry conversations. Left to itself gRPC lets each stream have up to 16 MiB under way, and
// whatever one of them has under way the others wait behind: it is one connection. So each may have this much, which at a
// distance of 100 ms is 2.5 MB a second.
const window = 256 << 10

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
