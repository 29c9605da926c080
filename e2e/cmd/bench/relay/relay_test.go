package relay_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/relay"
)

// What one says arrives, and so does that it has no more to say; the other may still answer.
func TestEachDirectionPassesAndEndsByItself(t *testing.T) {
	var config net.ListenConfig
	far, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	here, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var work errgroup.Group
	work.Go(func() error { return relay.Serve(ctx, here, far.Addr().String()) })
	work.Go(func() error {
		conn, err := far.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		all, err := io.ReadAll(conn)
		if err != nil {
			return err
		}
		_, err = conn.Write(bytes.ToUpper(all))
		return err
	})

	near, err := new(net.Dialer).DialContext(t.Context(), "tcp", here.Addr().String())
	require.NoError(t, err)
	question := bytes.Repeat([]byte("question "), 100_000)
	_, err = near.Write(question)
	require.NoError(t, err)
	require.NoError(t, near.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(near)
	require.NoError(t, err)
	require.True(t, bytes.Equal(bytes.ToUpper(question), answer))

	cancel()
	require.NoError(t, work.Wait())
	require.NoError(t, far.Close())
}
