package front_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/front"
)

func TestMalformedCommandsAreRefusedByName(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	for name, c := range map[string]struct{ text, want string }{
		"an argument of no type":          {"*1\r\n+PING\r\n", "-ERR Protocol error: expected '$', got '+'\r\n"},
		"a count that is no number":       {"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"a count with a sign":             {"*+1\r\n$4\r\nPING\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"a huge count":                    {"*2000000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"a count that overflows":          {"*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"a count that never ends":         {"*" + strings.Repeat("1", 100), "-ERR Protocol error: invalid multibulk length\r\n"},
		"a count with half an end":        {"*1\n$4\r\nPING\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"a length that is no number":      {"*1\r\n$four\r\nPING\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"a negative length":               {"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"a huge length":                   {"*2\r\n$3\r\nGET\r\n$2147483647\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"the largest number as a length":  {"*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"a length that is wrong":          {"*1\r\n$3\r\nPING\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"a line without end":              {strings.Repeat("a", 100<<10), "-ERR Protocol error: too big inline request\r\n"},
		"a line with open quotes":         {"GET \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
		"another protocol":                {"$9 get fleet\r\n", "-ERR Protocol error: expected '*', got '$'\r\n"},
		"a command that is not for proxy": {command("PSYNC", "?", "-1") + command("CLIENT", "REPLY", "OFF") + "*x\r\n", "-ERR psync is not served by redisproxy: connect to the hub's Redis itself\r\n-ERR client is not served by redisproxy: connect to the hub's Redis itself\r\n-ERR Protocol error: invalid multibulk length\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := dial(t, w.address)
			r.mustSend(command("SET", "a", "1") + c.text)
			answer, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, "+OK\r\n"+c.want, string(answer), "what was right is answered, then the error, then the end")
		})
	}
}

func TestCommandInPieces(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	r := dial(t, w.address)
	for _, c := range []byte(command("SET", "a", "1\r\n2") + command("GET", treeHub) + "\r\n*0\r\n*-1\r\n" + "GET a\r\n  get " + treeHub + "\n") {
		r.mustSend(string([]byte{c}))
	}
	for _, want := range []string{"+OK\r\n", bulk("tree"), bulk("1\r\n2"), bulk("tree")} {
		require.Equal(t, want, r.mustReceive())
	}
	r.mustSend("ECHO \"a b\\n\" \r\nSET x 'y z'\r\nGET x\r\n")
	require.Contains(t, r.mustReceive(), bulk("a b\n"))
	require.Equal(t, "+OK\r\n", r.mustReceive())
	require.Equal(t, bulk("y z"), r.mustReceive())
	r.mustSend("*3\r\n$3\r\nSET\r\n") // and then it goes
	require.NoError(t, r.Close())
	require.Eventually(t, func() bool { return w.metric(t, "argocd_redisproxy_clients", "") == 0 }, testTimeout, 5*time.Millisecond)
}

// A client may wait in Redis for as long as it likes, and is missed when it goes.
func TestBlockingCommandEndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{drain: 10 * time.Millisecond})
	hub := redistest.Client(t, w.hub.Address, 2)
	r := dial(t, w.address)
	r.mustSend(command("BLPOP", "list", "0"))
	r.mustSend(command("ECHO", "then"))
	require.NoError(t, hub.LPush(t.Context(), "list", "x").Err())
	require.Equal(t, "*2\r\n"+bulk("list")+bulk("x"), r.mustReceive())
	require.Equal(t, bulk("then"), r.mustReceive())
	require.Equal(t, bulk("after"), r.do("ECHO", "after"))
	r.mustSend(command("BLPOP", "list", "0"))
	require.Eventually(t, func() bool { return strings.Contains(hub.ClientList(t.Context()).Val(), "cmd=blpop") }, testTimeout, 5*time.Millisecond)
	require.NoError(t, r.Close())
	require.Eventually(t, func() bool { return w.metric(t, "argocd_redisproxy_clients", "") == 0 }, testTimeout, 5*time.Millisecond)
	require.Eventually(t, func() bool { return !strings.Contains(hub.ClientList(t.Context()).Val(), "cmd=blpop") }, testTimeout, 5*time.Millisecond)
}

// A client may send for long before it reads, as with Redis.
func TestClientSendsAllBeforeItReads(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	r := dial(t, w.address)
	value := strings.Repeat("v", 1000)
	require.Equal(t, "+OK\r\n", r.do("SET", "a", value))
	const count = 40_000 // far more, both ways, than sockets hold
	r.setTimeout(testTimeout)
	_, err := io.WriteString(r, strings.Repeat(command("GET", "a")+command("ECHO", value), count/2))
	require.NoError(t, err)
	want := strings.Repeat(bulk(value), count)
	got := make([]byte, len(want))
	r.setTimeout(testTimeout)
	_, err = io.ReadFull(r.reader, got)
	require.NoError(t, err)
	require.True(t, want == string(got)) //nolint:testifylint // 40 MB are not to be printed
}

// A client that goes while it waits for an agent, or in the middle of a command, is missed.
func TestClientDisconnectsDuringRead(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.agent.HoldReplies()
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	r := dial(t, w.address)
	r.mustSend(command("GET", treeHub) + "*2\r\n$3\r\nGET")
	w.agent.WaitForCommands(t, func(asked map[string]int) bool { return asked["GET"] == 1 })
	require.NoError(t, r.Conn.(*net.TCPConn).SetLinger(0)) // as when its machine has lost it
	require.NoError(t, r.Close())
	require.Eventually(t, func() bool { return w.metric(t, "argocd_redisproxy_clients", "") == 0 }, testTimeout, 5*time.Millisecond)
}

// A client may say that it will send no more before it reads, as one in a shell's pipe does.
func TestHalfClosedClientIsAnswered(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	for _, subscribe := range []string{"", command("UNSUBSCRIBE")} {
		r := dial(t, w.address)
		r.mustSend(subscribe + command("EVAL", "local n = 0; for i = 1, 1e6 do n = n + 1 end; return n", "0") + "ECHO then\r\n")
		require.NoError(t, r.Conn.(*net.TCPConn).CloseWrite())
		if subscribe != "" {
			require.Equal(t, "*3\r\n"+bulk("unsubscribe")+null("2")+":0\r\n", r.mustReceive())
		}
		require.Equal(t, ":1000000\r\n", r.mustReceive())
		require.Equal(t, bulk("then"), r.mustReceive())
		r.requireClosed()
	}
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	r := dial(t, w.address)
	r.mustSend(strings.Repeat(command("GET", treeHub)+command("PING"), 100))
	require.NoError(t, r.Conn.(*net.TCPConn).CloseWrite())
	for range 100 {
		require.Equal(t, bulk("tree"), r.mustReceive())
		require.Equal(t, "+PONG\r\n", r.mustReceive())
	}
	r.requireClosed()
}

// One that says so and then does not read either is disconnected, and holds no connection to Redis any more.
func TestHalfClosedClientThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{drain: time.Second, limits: front.Limits{Backlog: 1 << 20}})
	r := dial(t, w.address)
	require.Equal(t, "+OK\r\n", r.do("SET", "a", strings.Repeat("x", 1<<20)))
	r.mustSend(strings.Repeat(command("GET", "a"), 100)) // far more than sockets hold
	require.NoError(t, r.Conn.(*net.TCPConn).CloseWrite())
	require.Eventually(t, func() bool { return w.metric(t, "argocd_redisproxy_clients", "") == 0 }, testTimeout, 5*time.Millisecond)
}

func TestQuitIsAnsweredAndEnds(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	r := dial(t, w.address)
	r.mustSend(command("PING") + command("QUIT") + command("PING"))
	require.Equal(t, "+PONG\r\n", r.mustReceive())
	require.Equal(t, "+OK\r\n", r.mustReceive())
	r.requireClosed()
}

// What clients may have us keep is bounded: for one that nobody knows to a little, and for all together.
func TestLargeCommandsAreBounded(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}, limits: front.Limits{Bulk: 8 << 20, Large: 6 << 20}})
	r := dial(t, w.address)
	_, _ = io.WriteString(r, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5000000\r\n"+strings.Repeat("x", 1<<20)) // it may be cut off before
	require.Equal(t, "-ERR Protocol error: unauthenticated bulk length\r\n", r.mustReceive())

	r = dial(t, w.address)
	require.Equal(t, "+OK\r\n", r.do("AUTH", "secret"))
	value := strings.Repeat("x", 3<<20)
	require.Equal(t, "+OK\r\n", r.do("SET", "a", value))
	require.Equal(t, bulk(value), r.do("GET", "a"))
	_, _ = io.WriteString(r, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$8000000\r\n"+strings.Repeat("x", 7<<20))
	require.Equal(t, "-ERR Protocol error: clients send too much at once, try again later\r\n", r.mustReceive())

	r = dial(t, w.address)
	require.Equal(t, "+OK\r\n", r.do("AUTH", "secret"))
	require.Equal(t, "+OK\r\n", r.do("SET", "a", value), "what was held has been given back")
}

// Redis disconnects one who is not accepted for more than little. That hits nobody else who is not.
func TestUnauthenticatedClientEndsOnlyItsOwnConnection(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}})
	other, third := dial(t, w.address), dial(t, w.address)
	for range 20 {
		r := dial(t, w.address)
		r.mustSend(command("MGET", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"))
		for _, c := range []*rawClient{other, third} {
			require.Equal(t, "-NOAUTH Authentication required.\r\n", c.do("GET", "a"))
		}
		require.Equal(t, "-ERR Protocol error: unauthenticated multibulk length\r\n", r.mustReceive())
	}
}

func TestClientLimit(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{limits: front.Limits{Clients: 2}})
	one, two := dial(t, w.address), dial(t, w.address)
	require.Equal(t, "+PONG\r\n", one.do("PING"))
	require.Equal(t, "+PONG\r\n", two.do("PING"))
	three := dial(t, w.address)
	three.requireClosed()
	require.NoError(t, one.Close())
	require.Eventually(t, func() bool { return w.metric(t, "argocd_redisproxy_clients", "") == 1 }, testTimeout, 5*time.Millisecond)
	require.Equal(t, "+PONG\r\n", dial(t, w.address).do("PING"))
}
