package tunnel

import (
	"google.golang.org/grpc"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/hostname"
)

// streamWindow is HTTP/2's own window for a stream, in bytes. It must never stop a connection that has credit: gRPC opens it
// again when a quarter was read, so at least three quarters are open, more than an inbox takes. Without a value gRPC would
// let it grow to 16 MiB, and the principal might have to keep as much for a stream. HTTP/2's window for all streams together
// is two of these; gRPC opens that when something arrives, whoever reads it.
const streamWindow = 2 * window

// maxHeaders bounds what the headers of a call may have, in bytes of HTTP/2's count (SETTINGS_MAX_HEADER_LIST_SIZE), from either peer.
// gRPC keeps them as long as the call lasts, and takes 16 MiB of each unless told otherwise.
const maxHeaders = 64 << 10

// ServerOptions returns the options of a principal that relays tunnel connections. It has no read buffer, which would be
// 32 KiB for each idle agent: TLS has one already.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ReadBufferSize(0), grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(2 * streamWindow),
		grpc.MaxHeaderListSize(maxHeaders),
	}
}

// DialOptions returns the options of whoever connects to a principal for tunnel connections. These addresses are tried last.
func DialOptions(last ...string) []grpc.DialOption {
	return append(XDSDialOptions(), hostname.DialOptions(last...)...)
}

// XDSDialOptions is DialOptions for a target of gRPC's xDS, whose routes are a service config.
func XDSDialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(2 * streamWindow), grpc.WithMaxHeaderListSize(maxHeaders),
	}
}

// callOptions are those of a tunnel connection's stream.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.ForceCodecV2(frames{}), grpc.MaxCallRecvMsgSize(MaxFrame)}
}
