package front_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/front"
)

func itoa(n int) string { return strconv.Itoa(n) }

// What a hub's own commands are answered is what Redis says, to the byte.
func TestHubCommandsAreAnsweredAsByRedis(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	commands := [][]string{
		{"PING"}, {"ping", "hello"}, {"ECHO", "x\r\ny"}, {"SET", "a", "1"}, {"get", "a"}, {"GeT", "nothing"}, {"SET", "e", ""}, {"GET", "e"},
		{"MSET", "b", "2", "c", "3"}, {"MGET", "a", "b", "x", "c"}, {"INCR", "a"}, {"INCR", "e"}, {"GET"}, {"NONSENSE", "x"},
		{"HSET", "h", "f", "v", "g", "w"}, {"HGETALL", "h"}, {"LPUSH", "l", "1", "2"}, {"LRANGE", "l", "0", "-1"}, {"GET", "l"},
		{"SELECT", "3"}, {"GET", "a"}, {"SELECT", "0"}, {"GET", "a"}, {"SELECT", "99"}, {"EXPIRE", "a", "100"}, {"TTL", "a"},
		{"MULTI"}, {"GET", "a"}, {"GET", treeHub}, {"EXEC"}, {"MULTI"}, {"INCR", "a"}, {"DISCARD"}, {"EXEC"}, {"WATCH", "a"}, {"UNWATCH"},
		{"SCAN", "0", "COUNT", "100"}, {"RENAME", "b", "d"}, {"RENAME", "b", "d"}, {"DEL", "c", "d"}, {"EXISTS", "c", "a"}, {"TYPE", "h"},
		{"OBJECT", "ENCODING", "a"}, {"CLIENT", "SETNAME", "me"}, {"CLIENT", "GETNAME"}, {"CLIENT"}, {"CONFIG", "GET", "save"}, {"DBSIZE"},
		{"EVAL", "return {1,'two',{3}}", "0"}, {"GET", "app|resources-tree|local|1.8.3.gz"}, {"SET", "app|resources-tree|local|1.8.3.gz", "v"},
		{"GET", "app|resources-tree|local|1.8.3.gz"}, {"GET", "cluster|info|https://elsewhere|1.8.3"}, {"RESET"}, {"GET", "a"},
	}
	for _, hello := range []string{"2", "3"} {
		direct, proxied := dial(t, w.hub.Address), dial(t, w.address)
		for _, c := range []*rawClient{direct, proxied} {
			require.NotContains(t, c.do("HELLO", hello), "-ERR")
		}
		require.Equal(t, "+OK\r\n", direct.do("FLUSHALL"))
		want := make([]string, len(commands))
		for i, words := range commands {
			want[i] = direct.do(words...)
		}
		require.Equal(t, "+OK\r\n", direct.do("FLUSHALL"))
		for i, words := range commands {
			require.Equal(t, want[i], proxied.do(words...), "%q in RESP%s", words, hello)
		}
		// The same all at once, twice.
		for range 2 {
			require.NotContains(t, proxied.do("HELLO", hello), "-ERR")
			require.Equal(t, "+OK\r\n", direct.do("FLUSHALL"))
			var all strings.Builder
			for _, words := range commands {
				all.WriteString(command(words...))
			}
			proxied.mustSend(all.String())
			for i, words := range commands {
				require.Equal(t, want[i], proxied.mustReceive(), "%q in RESP%s, in a pipeline", words, hello)
			}
		}
	}
}

// Many clients at once: everyone gets its own replies, in order, and transactions and databases do not leak.
func TestManyClientsGetTheirOwnReplies(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	var clients errgroup.Group
	for n := range 24 {
		c := dial(t, w.address)
		key, database := fmt.Sprintf("key-%d", n), itoa(n%4)
		c.do("HELLO", itoa(2+n%2))
		c.do("SELECT", database)
		clients.Go(func() error {
			for i := range 60 {
				value := fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("x", i*37))
				set, get := command("SET", key, value), command("GET", key)
				var err error
				switch i % 6 {
				case 0:
					err = c.expect(command("MULTI")+set+get+command("EXEC"), "+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n"+bulk(value))
				case 1:
					err = c.expect(set+command("GET", treeHub)+get, "+OK\r\n", bulk("tree"), bulk(value))
				default:
					err = errors.Join(c.expect(set, "+OK\r\n"), c.expect(get, bulk(value)))
				}
				if err != nil {
					return err
				}
			}
			return c.expect(command("ECHO", key+database), bulk(key+database))
		})
	}
	require.NoError(t, clients.Wait())
	for n := range 24 {
		client := database(t, w.hub.Address, n%4)
		require.Equal(t, int64(1), client.Exists(t.Context(), fmt.Sprintf("key-%d", n)).Val())
	}
}

func database(t *testing.T, address string, database int) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, DB: database})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// go-redis, as Argo CD uses it.
func TestGoRedisWorksInBothProtocols(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}})
	for _, protocol := range []int{2, 3} {
		client := w.client(t, protocol, func(o *redis.Options) { o.Password, o.DB = "secret", 5 })
		ctx := t.Context()
		require.NoError(t, client.Set(ctx, "k", strings.Repeat("v", 3<<20), 0).Err())
		require.Len(t, client.Get(ctx, "k").Val(), 3<<20)
		require.ErrorIs(t, client.Get(ctx, "none").Err(), redis.Nil)
		require.ErrorIs(t, client.Get(ctx, treeHub).Err(), redis.Nil)
		commands, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 5000 {
				p.Set(ctx, "p"+itoa(i), i, 0)
			}
			for i := range 5000 {
				p.Get(ctx, "p"+itoa(i))
			}
			return nil
		})
		require.NoError(t, err)
		for i := range 5000 {
			require.Equal(t, itoa(i), commands[5000+i].(*redis.StringCmd).Val())
		}
		_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Incr(ctx, "n"); p.Incr(ctx, "n"); return nil })
		require.NoError(t, err)
		keys, _, err := client.Scan(ctx, 0, "n*", 100000).Result()
		require.NoError(t, err)
		require.Equal(t, []string{"n"}, keys)
	}
}

func TestClientConnectsOverTLS(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{tls: certificate(t)})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	client := w.client(t, 3, func(o *redis.Options) {
		o.TLSConfig = &tls.Config{InsecureSkipVerify: true}
	})
	var clients errgroup.Group
	for range 8 {
		clients.Go(func() error {
			for range 20 {
				if err := client.Set(t.Context(), "a", "b", 0).Err(); err != nil {
					return err
				}
				if tree, err := client.Get(t.Context(), treeHub).Result(); err != nil || tree != "tree" {
					return errors.Join(err, fmt.Errorf("%q is not the tree", tree))
				}
			}
			return nil
		})
	}
	require.NoError(t, clients.Wait())
}

// When the hub's Redis restarts, clients are disconnected, as Redis itself would do, and the next command of a new one works.
func TestHubRedisRestarts(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	clients := make([]*rawClient, 6)
	for i := range clients {
		clients[i] = dial(t, w.address)
	}
	for _, c := range clients {
		require.Equal(t, "+PONG\r\n", c.do("PING"))
	}
	w.hub.Stop()
	for _, c := range clients {
		c.mustSend(command("PING"))
		c.requireClosed()
	}
	c := dial(t, w.address)
	c.mustSend(command("GET", "a"))
	c.requireClosed()
	w.hub.Resume()
	for range 3 {
		c = dial(t, w.address)
		require.Equal(t, "+OK\r\n", c.do("SET", "a", "1"))
	}
	client := w.client(t, 3, func(o *redis.Options) { o.MaxRetries = 3 })
	require.NoError(t, client.Ping(t.Context()).Err())
	w.hub.Stop()
	w.hub.Resume()
	require.NoError(t, client.Ping(t.Context()).Err(), "go-redis gets over it by itself")
}

// A client that does not read has Redis wait for it, and nobody else, and is answered once it reads.
func TestSlowClientStopsOnlyItself(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{limits: front.Limits{Backlog: 4 << 20}})
	client := w.client(t, 2)
	value := strings.Repeat("x", 12<<20)
	require.NoError(t, client.Set(t.Context(), "large", value, 0).Err())
	slow := make([]*rawClient, 6)
	for i := range slow {
		slow[i] = dial(t, w.address)
		slow[i].mustSend(command("GET", "large") + command("GET", "a"))
	}
	for i := range 200 {
		require.NoError(t, client.Set(t.Context(), "a", i, 0).Err())
	}
	require.True(t, bulk(value) == slow[0].mustReceive()) //nolint:testifylint // 12 MB are not to be printed
	require.Contains(t, slow[0].mustReceive(), "$")
	require.Zero(t, w.metric(t, "argocd_redisproxy_clients_overrun_total", ""))
	for _, c := range slow {
		_ = c.Close()
	}
	require.Eventually(t, func() bool { return w.metric(t, "argocd_redisproxy_clients", "") == 1 }, testTimeout, 10*time.Millisecond)
}

// certificate is one for a server.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := ca.IssueServer(pki.ServerOptions{Names: []string{"localhost"}})
	require.NoError(t, err)
	own, err := pair.TLS()
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{own}}
}

// What Redis did not begin is no transaction, and what is refused in one spoils it, as at Redis.
func TestRefusedCommandSpoilsTransaction(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	r := dial(t, w.address)
	require.Contains(t, r.do("MULTI", "x"), "-ERR wrong number of arguments")
	require.Equal(t, bulk("tree"), r.do("GET", treeHub))
	require.Equal(t, pubsubReply("2", "subscribe", "x", ":1"), r.do("SUBSCRIBE", "x"))
	require.Contains(t, r.do("MULTI"), "-ERR Can't execute 'multi'")
	require.Equal(t, pubsubReply("2", "unsubscribe", "x", ":0"), r.do("UNSUBSCRIBE", "x"))
	for _, words := range [][]string{{"SUBSCRIBE", "x"}, {"HELLO", "3"}, {"CLIENT", "REPLY", "OFF"}, {"DISCARD", "x"}} {
		require.Equal(t, "+OK\r\n", r.do("MULTI"))
		require.Equal(t, "+QUEUED\r\n", r.do("SET", "a", "1"))
		require.Contains(t, r.do(words...), "-ERR ")
		require.Equal(t, "+QUEUED\r\n", r.do("GET", treeHub))
		require.Contains(t, r.do("EXEC"), "-EXECABORT")
		require.Equal(t, null("2"), r.do("GET", "a"))
	}
}

// What agents have is as much part of a transaction as what Redis has: it is read by Redis, and what may not be written spoils it.
func TestAgentKeysInATransaction(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	for _, protocol := range []string{"2", "3"} {
		r := dial(t, w.address)
		r.do("HELLO", protocol)
		reads := [][]string{{"GET", treeHub}, {"TYPE", treeHub}, {"MGET", "own", treeHub}, {"EXISTS", "own", treeHub}, {"STRLEN", treeHub}}
		transaction := command("SET", "own", "1") + command("MULTI")
		for _, words := range reads {
			transaction += command(words...)
		}
		r.mustSend(transaction + command("EXEC") + command("GET", treeHub))
		require.Equal(t, "+OK\r\n", r.mustReceive())
		require.Equal(t, "+OK\r\n", r.mustReceive())
		for range reads {
			require.Equal(t, "+QUEUED\r\n", r.mustReceive())
		}
		require.Equal(t, "*5\r\n"+null(protocol)+"+none\r\n*2\r\n"+bulk("1")+null(protocol)+":1\r\n:0\r\n", r.mustReceive())
		require.Equal(t, bulk("tree"), r.mustReceive())

		require.Equal(t, "+OK\r\n", r.do("MULTI"))
		require.Equal(t, "+QUEUED\r\n", r.do("SET", "own", "2"))
		require.Contains(t, r.do("SET", treeHub, "x"), "-ERR ")
		require.Contains(t, r.do("EXEC"), "-EXECABORT")
		require.Equal(t, bulk("1"), r.do("GET", "own"))
		require.Equal(t, null(protocol), w.direct(t, protocol).do("GET", treeHub), "nothing is written to the hub's Redis")
	}
}

// A client may ask for more at once than is looked at ahead, of Redis and of agents in turn, before it reads anything.
func TestLongPipelineOfAgentKeysIsAnsweredInOrder(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	tree := strings.Repeat("t", 2000)
	w.spoke.Set(t.Context(), treeSpoke, tree, 0)
	r := dial(t, w.address)
	const count = 5000 // 10 MB of replies
	pipeline := ""
	for i := range count {
		pipeline += command("ECHO", itoa(i)) + command("GET", treeHub)
	}
	r.mustSend(pipeline)
	for i := range count {
		require.Equal(t, bulk(itoa(i)), r.mustReceive())
		require.Equal(t, bulk(tree), r.mustReceive())
	}
}
