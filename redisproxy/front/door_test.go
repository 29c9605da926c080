package front_test

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/front"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

// stuckRedis is a Redis over TLS that asks for no password, and leaves its second connection in the handshake. The channel is closed when
// that one has come.
func stuckRedis(t *testing.T) (upstream.Options, <-chan struct{}) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	config, stuck := certificate(t), make(chan struct{})
	var serving sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn // guarded by mu
	serving.Go(func() {
		for n := 1; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			if n == 2 {
				close(stuck)
				continue
			}
			serving.Go(func() {
				secure := tls.Server(conn, config)
				for reader := redcon.NewReader(secure); ; {
					if _, err := reader.ReadCommand(); err != nil {
						return
					}
					if _, err := secure.Write([]byte("+PONG\r\n")); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return upstream.Options{
		Address: listener.Addr().String(), Timeout: 10 * testTimeout,
		TLS: func() (*tls.Config, error) {
			return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, nil
		},
	}, stuck
}

// A connection to Redis that takes long keeps only its own client waiting.
func TestSlowConnectionToRedisKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	at, stuck := stuckRedis(t)
	w := begin(t, setup{upstream: &at})
	first, second := dial(t, w.address), dial(t, w.address)
	first.mustSend(command("PING"))
	second.mustSend(command("PING"))
	<-stuck
	for range 3 {
		require.Equal(t, "+PONG\r\n", dial(t, w.address).do("PING"))
	}
}

// One address' connections that say nothing do not end those of others that are about to authenticate.
func TestAddressWithMostStrangersMakesRoom(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}, limits: front.Limits{Strangers: 5}})
	honest := dialFrom(t, &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}, w.address)
	for range 50 {
		dial(t, w.address)
	}
	require.Equal(t, noAuth, dial(t, w.address).do("PING"), "all of them have come")
	require.Equal(t, "+OK\r\n", honest.do("AUTH", "secret"))
}
