package uplink

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// renewal closes the connection when the principal no longer trusts the certificate that it was opened with, if there is a
// newer one. gRPC would keep the connection, with every call refused; it opens another when this one is closed. A newer
// certificate alone does not close anything.
type renewal struct {
	credentials.TransportCredentials
	material *certs.Source

	mu        sync.Mutex
	conn      net.Conn         // the newest. Guarded by mu
	presented *tls.Certificate // when it was opened. Guarded by mu
}

// ClientHandshake records the certificate that a connection is opened with.
func (r *renewal) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	material, _ := r.material.Current() // if there is none, the handshake says why
	conn, info, err := r.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.presented = conn, material.Certificate
	return conn, info, nil
}

// Clone returns the same renewal: there is one connection to record.
func (r *renewal) Clone() credentials.TransportCredentials { return r }

// watch is an interceptor that looks at how streams end.
func (r *renewal) watch(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return open(ctx, desc, conn, method, append(options, grpc.OnFinish(r.finished))...)
}

func (r *renewal) finished(err error) {
	if status.Code(err) != codes.Unauthenticated {
		return
	}
	material, err := r.material.Current()
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil && material.Certificate != r.presented {
		_ = r.conn.Close()
		r.conn = nil
	}
}
