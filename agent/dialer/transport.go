package dialer

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// opening is how long one attempt to connect may take, from TCP to the first answer over HTTP/2: several round trips, and
// the principal may be far away. Unless it is said, gRPC gives them no more than its shortest pause between attempts.
const opening = 20 * time.Second

// transport returns the options that every connection is made with.
func transport(o Options) []grpc.DialOption {
	options := append(tunnel.DialOptions(),
		grpc.WithTransportCredentials(o.Credentials),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A stream that cannot be opened fails, and the dialer decides when to try again.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: opening,
		}),
	)
	if o.KeepAlive > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.KeepAlive, Timeout: o.KeepAlive}))
	}
	return append(options, o.Dial...)
}
