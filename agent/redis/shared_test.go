package redis_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/redis"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// An application that is not shared is one that does not exist: its keys are missing, and nothing is heard of it.
func TestApplicationsThatAreNotSharedAreNotThere(t *testing.T) {
	spoke := redistest.Start(t)
	client := redis.Access{Address: spoke.Address}.Client()
	defer client.Close()
	write := func(key string) { require.NoError(t, client.Set(t.Context(), key, "x", 0).Err()) }
	const (
		tree, shard, managed = "app|resources-tree|private|1.8.3.gz", "app|resources-tree|private|1|1.8.3.gz", "app|managed-resources|private|1.8.3"
		open, cluster        = "app|resources-tree|open|1.8.3.gz", "cluster|info|https://kubernetes.default.svc|1.8.3"
		odd                  = "app|resources-tree|open" // is none of an application
	)
	for _, key := range []string{tree, shard, managed, open, cluster, odd} {
		write(key)
	}
	var shared atomic.Bool
	dial := serve(t, redis.Options{
		Access: redis.Access{Address: spoke.Address}, Shared: func(name string) bool { return name == "open" || name == "private" && shared.Load() },
	})
	c := dial(t).sendHello(t)
	c.send(t, command("GET", tree)+command("GET", open)+command("GET", shard)+command("get", managed)+command("GET", odd)+command("GET", cluster)+command("PING"))
	c.expect(t, "_", "$1", "x", "_", "_", "_", "$1", "x", "+PONG")

	c.send(t, "CLIENT TRACKING ON BCAST PREFIX app| PREFIX cluster|info|\r\nPSUBSCRIBE app|managed-resources|*\r\nSUBSCRIBE app|managed-resources|private|1.8.3\r\n")
	c.expect(t, "+OK", ">3", "$10", "psubscribe", "$23", "app|managed-resources|*", ":1", ">3", "$9", "subscribe", "$35", managed[:35], ":2")
	for _, name := range []string{"private", "open"} {
		require.NoError(t, client.Publish(t.Context(), "app|managed-resources|"+name+"|1.8.3", "").Err())
	}
	c.expect(t, ">4", "$8", "pmessage", "$23", "app|managed-resources|*", "$32", "app|managed-resources|open|1.8.3", "$0", "")
	write(tree)
	write(open)
	c.expect(t, ">2", "$10", "invalidate", "*1", "$32", open)
	require.NoError(t, client.MSet(t.Context(), tree, "1", managed, "2", cluster, "3", open, "4", odd, "5").Err())
	require.ElementsMatch(t, []string{open, cluster}, []string{c.invalidated(t), c.invalidated(t)})

	shared.Store(true)
	c.send(t, command("GET", tree))
	c.expect(t, "$1", "1")
	write(tree)
	require.Equal(t, tree, c.invalidated(t))
	require.NoError(t, client.FlushAll(t.Context()).Err())
	c.expect(t, ">2", "$10", "invalidate", "_")
}

// invalidated reads that one key has changed.
func (c *caller) invalidated(t *testing.T) string {
	t.Helper()
	c.expect(t, ">2", "$10", "invalidate", "*1")
	_, err := c.answers.ReadString('\n')
	require.NoError(t, err)
	name, err := c.answers.ReadString('\n')
	require.NoError(t, err)
	return name[:len(name)-2]
}

// The hub reads anew what it may have kept as missing.
func TestConnectionsThatFollowChangesEndWhenAnApplicationIsSharedAgain(t *testing.T) {
	spoke := redistest.Start(t)
	var server *redis.Server
	dial := serveWith(t, redis.Options{Access: redis.Access{Address: spoke.Address}}, &server)
	reads, follows := dial(t).sendHello(t), dial(t).sendHello(t)
	follows.send(t, "PSUBSCRIBE app|managed-resources|*\r\n")
	follows.expect(t, ">3", "$10", "psubscribe", "$23", "app|managed-resources|*", ":1")
	reads.send(t, "PING\r\n")
	reads.expect(t, "+PONG")
	server.Reset()
	require.Empty(t, follows.expectClosed(t))
	reads.send(t, "PING\r\n")
	reads.expect(t, "+PONG")
}
