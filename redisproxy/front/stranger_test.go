package front_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/front"
)

const noAuth = "-NOAUTH Authentication required.\r\n"

// hubConnections returns how many connections the hub's Redis has had, by a client of it.
func hubConnections(t *testing.T, direct *rawClient) string {
	t.Helper()
	for line := range strings.Lines(direct.do("INFO", "stats")) {
		if count, ok := strings.CutPrefix(line, "total_connections_received:"); ok {
			return strings.TrimSpace(count)
		}
	}
	require.Fail(t, "Redis does not say how many connections it has had")
	return ""
}

// Who has the password is served, however many others hold connections and say nothing.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{
		redisArgs: []string{"--requirepass", "secret"}, limits: front.Limits{Clients: 2, Strangers: 5},
	})
	known := dial(t, w.address)
	require.Equal(t, "+OK\r\n", known.do("AUTH", "secret"))
	var silent []*rawClient
	for range 50 {
		silent = append(silent, dial(t, w.address))
	}
	late := dial(t, w.address)
	require.Equal(t, "+OK\r\n", late.do("AUTH", "secret"))
	require.Equal(t, "+PONG\r\n", known.do("PING"), "who has authenticated keeps its place")
	silent[0].requireClosed()
	require.Equal(t, noAuth, silent[49].do("PING"), "the newest are still there")
	require.NotZero(t, w.metric(t, "argocd_redisproxy_clients_unauthenticated_total", ""))
	dial(t, w.address).requireClosed() // the two places are taken
}

// One that does not authenticate in time is disconnected, also when it says something all the time, or has let go of its name.
func TestClientThatDoesNotAuthenticateIsDisconnected(t *testing.T) {
	t.Parallel()
	const stranger = 5 * time.Second
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}, auth: stranger})
	known, reset := dial(t, w.address), dial(t, w.address)
	for _, r := range []*rawClient{known, reset} {
		require.Equal(t, "+OK\r\n", r.do("AUTH", "secret"))
	}
	began := time.Now()
	require.Equal(t, "+RESET\r\n", reset.do("RESET"))
	silent, busy, incomplete, wrong := dial(t, w.address), dial(t, w.address), dial(t, w.address), dial(t, w.address)
	incomplete.mustSend("*2\r\n$4\r\nAUTH\r\n$6\r\nsec")
	require.Contains(t, wrong.do("AUTH", "wrong"), "-WRONGPASS")
	for busy.send(command("PING")) == nil {
		reply, err := busy.receive()
		if err != nil {
			break
		}
		require.Equal(t, noAuth, reply)
	}
	for _, r := range []*rawClient{silent, incomplete, wrong, reset} {
		r.requireClosed()
	}
	require.GreaterOrEqual(t, time.Since(began), stranger)
	require.Equal(t, "+PONG\r\n", known.do("PING"))
}

// Strangers cost no connection to the hub's Redis, to which a NetworkPolicy may not let them.
func TestStrangersCostNoConnectionToRedis(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}})
	require.Equal(t, noAuth, dial(t, w.address).do("PING")) // it is asked once
	direct := dial(t, w.hub.Address)
	require.Equal(t, "+OK\r\n", direct.do("AUTH", "secret"))
	before := hubConnections(t, direct)
	for range 20 {
		r := dial(t, w.address)
		for _, words := range [][]string{{"GET", treeHub}, {"HELLO", "3"}, {"CLIENT", "SETNAME", "AUTH"}, {"AUTH"}, {"SUBSCRIBE", channelHub}} {
			require.Equal(t, noAuth, r.do(words...), "%q", words)
		}
	}
	require.Equal(t, before, hubConnections(t, direct))
	r := dial(t, w.address)
	r.mustSend("*2\r\n$3\r\nGET\r\n$100000\r\n")
	_, _ = io.WriteString(r, strings.Repeat("x", 1<<17)) // it may be cut off before
	require.Equal(t, "-ERR Protocol error: unauthenticated bulk length\r\n", r.mustReceive())
	require.Equal(t, before, hubConnections(t, direct))
	require.Zero(t, w.agent.Commands("HELLO"), "nor anything on a spoke")

	r = dial(t, w.address)
	require.Equal(t, noAuth, r.do("PING"))
	require.Equal(t, "+OK\r\n", r.do("AUTH", "secret"))
	require.Equal(t, "+PONG\r\n", r.do("PING"))
}

// EXISTS of keys of the hub's and of agents' together tells no more of agents' than the user may ask of Redis.
func TestExistsOfMixedKeysIsAskedWithTheRightsOfTheUser(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	hub := w.client(t, 3)
	require.NoError(t, hub.Set(t.Context(), "own:a", "1", 0).Err())
	require.NoError(t, hub.Do(t.Context(), "ACL", "SETUSER", "narrow", "on", "nopass", "~own:*", "+exists", "+get", "+mget", "+multi", "+exec").Err())
	r := dial(t, w.address)
	require.Equal(t, "+OK\r\n", r.do("AUTH", "narrow", ""))
	for _, words := range [][]string{
		{"EXISTS", treeHub}, {"EXISTS", "own:a", treeHub}, {"EXISTS", treeHub, "own:a"}, {"MGET", "own:a", treeHub}, {"GET", treeHub},
	} {
		require.Contains(t, r.do(words...), "-NOPERM", "%q", words)
	}
	require.Equal(t, ":1\r\n", r.do("EXISTS", "own:a"))
	all := dial(t, w.address)
	require.Equal(t, ":2\r\n", all.do("EXISTS", "own:a", treeHub, "own:b"))
	require.Equal(t, "+OK\r\n", all.do("MULTI"))
	require.Equal(t, "+QUEUED\r\n", all.do("EXISTS", "own:a", treeHub))
	require.Equal(t, "*1\r\n:1\r\n", all.do("EXEC"), "a transaction is Redis' own")
}

// A TLS client that does not even shake hands is disconnected too.
func TestClientThatDoesNotShakeHandsIsDisconnected(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{tls: certificate(t), auth: 100 * time.Millisecond})
	conn, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", w.address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
}
