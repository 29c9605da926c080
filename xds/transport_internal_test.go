package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
)

// An Envoy that has nothing to say asks every ten seconds whether its connection still works, and stays connected.
func TestQuietClientMayPing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server, listener := grpc.NewServer(transport()...), bufconn.Listen(1<<16)
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { _ = server.Serve(listener) }) // it ends with Stop
		defer server.Stop()
		conn, err := listener.DialContext(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		client := greet(t, conn)
		running.Go(client.read)
		for n := range 20 {
			<-time.After(10 * time.Second)
			require.NoError(t, client.ping(false, [8]byte{byte(n)}))
			require.NoError(t, <-client.pongs)
		}
	})
}

// quiet is a client that only answers, and pings.
type quiet struct {
	*http2.Framer

	writing sync.Mutex
	pongs   chan error // nil for each, and why the connection ends
}

func (q *quiet) ping(ack bool, data [8]byte) error {
	q.writing.Lock()
	defer q.writing.Unlock()
	return q.WritePing(ack, data)
}

func greet(t *testing.T, conn net.Conn) *quiet {
	t.Helper()
	_, err := io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings())
	return &quiet{Framer: framer, pongs: make(chan error)}
}

// read answers the server's pings, and reports answers to the client's, until the connection ends.
func (q *quiet) read() {
	defer close(q.pongs)
	for {
		frame, err := q.ReadFrame()
		if err != nil {
			return
		}
		if ended, is := frame.(*http2.GoAwayFrame); is {
			q.pongs <- errors.New(ended.ErrCode.String() + " " + string(ended.DebugData()))
			return
		}
		ping, is := frame.(*http2.PingFrame)
		switch {
		case !is:
		case ping.IsAck():
			q.pongs <- nil
		default:
			_ = q.ping(true, ping.Data) // if the connection has ended, reading says so
		}
	}
}
