package redis_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/redis"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// A hub that sends commands and never reads costs the spoke's Redis little: only so many commands are unanswered at a time.
func TestHubThatDoesNotReadCostsRedisLittle(t *testing.T) {
	spoke := redistest.Start(t)
	client := redis.Access{Address: spoke.Address}.Client()
	defer client.Close()
	const size, times = 1 << 20, 500
	value := strings.Repeat("x", size)
	require.NoError(t, client.Set(t.Context(), "app|resources-tree|big|1.8.3", value, 0).Err())
	c := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address}})(t).sendHello(t)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte(strings.Repeat("GET app|resources-tree|big|1.8.3\r\n", times)))
		sent <- err
	}()
	requireLittle := func() {
		info, err := client.InfoMap(t.Context(), "memory").Result()
		require.NoError(t, err)
		peak, err := strconv.Atoi(info["Memory"]["used_memory_peak"])
		require.NoError(t, err)
		require.Less(t, peak, 40*size)
	}
	for i := range times { // nothing of it is lost
		if i%50 == 1 {
			requireLittle()
		}
		c.expect(t, "$"+strconv.Itoa(size), value)
	}
	requireLittle()
	require.NoError(t, <-sent)
}

// Redis keeps all channels that a client subscribes to.
func TestSubscriptionLimit(t *testing.T) {
	spoke := redistest.Start(t)
	c := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address}})(t).sendHello(t)
	c.send(t, strings.Repeat("SUBSCRIBE app|managed-resources|a\r\n", 513))
	require.Contains(t, c.expectClosed(t), "-NOPERM too many channels")
}
