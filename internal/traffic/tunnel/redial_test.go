package tunnel_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// ending is a connection to principals of which some have ended: streams that begin at those fail.
type ending struct {
	grpc.ClientConnInterface

	code  codes.Code
	calls int // that fail; the others do not
}

func (e *ending) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	e.calls--
	if e.calls >= 0 {
		return nil, status.Error(e.code, "upstream connect error") // as Envoy says it
	}
	return e.ClientConnInterface.NewStream(ctx, desc, method, options...)
}

func TestDialGoesOnWhenItsPrincipalEnds(t *testing.T) {
	w := relaytest.Open(t)
	d := tunnel.NewDialer(&ending{ClientConnInterface: w.Hub, code: codes.Unavailable, calls: 2}, "the test", "")
	c, err := d.Dial(t.Context(), relaytest.Echo, tunnel.Kube)
	require.NoError(t, err)
	_, err = io.WriteString(c, "hello")
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	d.Wait()
}

func TestDialGivesUpWithoutAPrincipal(t *testing.T) {
	for code, want := range map[codes.Code]time.Duration{codes.Unavailable: 3 * time.Second, codes.PermissionDenied: 0} {
		bubble.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := tunnel.NewDialer(&ending{code: code, calls: 1000}, "the test", "").Dial(t.Context(), "a", tunnel.Kube)
			require.ErrorContains(t, err, "upstream connect error")
			require.Equal(t, want, time.Since(began))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = tunnel.NewDialer(&ending{code: code, calls: 1000}, "the test", "").Dial(ctx, "a", tunnel.Kube)
			require.Error(t, err)
			require.LessOrEqual(t, time.Since(began), want+time.Second)
		})
	}
}
