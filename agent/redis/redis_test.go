package redis_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/redis"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is how long a test waits for what must happen.
const testTimeout = 2 * time.Minute

// serve serves the hub until the test is over, and returns how it dials.
func serve(t *testing.T, o redis.Options) func(t *testing.T) *caller {
	t.Helper()
	var server *redis.Server
	return serveWith(t, o, &server)
}

// serveWith is serve for a test that needs the server too.
func serveWith(t *testing.T, o redis.Options, made **redis.Server) func(t *testing.T) *caller {
	t.Helper()
	o.Namespace, o.Registerer = "argocd", prometheus.NewRegistry()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Shared == nil {
		o.Shared = func(string) bool { return true }
	}
	server := redis.New(o)
	*made = server
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(ctx, listener) })
	t.Cleanup(func() { cancel(); listener.Close(); running.Wait() })
	return func(t *testing.T) *caller {
		t.Helper()
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
		return &caller{conn, bufio.NewReader(conn)}
	}
}

// caller is the hub, word by word.
type caller struct {
	net.Conn

	answers *bufio.Reader
}

func (c *caller) send(t *testing.T, words string) {
	t.Helper()
	_, err := io.WriteString(c, words)
	require.NoError(t, err)
}

// expect reads lines of an answer.
func (c *caller) expect(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		line, err := c.answers.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want+"\r\n", line)
	}
}

// sendHello sends HELLO, and reads the reply.
func (c *caller) sendHello(t *testing.T) *caller {
	t.Helper()
	c.send(t, "HELLO 3\r\n")
	c.expect(t, "%5", "$6", "server", "$12", "argocd-agent")
	for range 14 { // version, prefix and namespace with their lengths, and the protocol
		_, err := c.answers.ReadString('\n')
		require.NoError(t, err)
	}
	c.expect(t, ":3")
	return c
}

// expectClosed reads until the connection is closed.
func (c *caller) expectClosed(t *testing.T) string {
	t.Helper()
	rest, err := io.ReadAll(c.answers)
	require.NoError(t, err)
	return string(rest)
}

func TestHubReadsWhatArgoCDShows(t *testing.T) {
	spoke := redistest.Start(t, "--requirepass", "secret")
	client := redis.Access{Address: spoke.Address, Password: "secret"}.Client()
	defer client.Close()
	tree := "app|resources-tree|guestbook|1.8.3.gz"
	require.NoError(t, client.Set(t.Context(), tree, "a\r\ntree", 0).Err())
	dial := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address, Password: "secret"}})
	c := dial(t).sendHello(t)
	c.send(t, "GET "+tree+"\r\nget app|managed-resources|none|1.8.3.gz\r\nPING\r\n")
	c.expect(t, "$7", "a", "tree", "_", "+PONG")

	c.send(t, "CLIENT TRACKING ON BCAST PREFIX app| PREFIX cluster|info|\r\nPSUBSCRIBE app|managed-resources|*\r\n")
	c.expect(t, "+OK", ">3", "$10", "psubscribe", "$23", "app|managed-resources|*", ":1")
	require.NoError(t, client.Set(t.Context(), tree, "another", 0).Err())
	c.expect(t, ">2", "$10", "invalidate", "*1", "$37", tree)
	require.NoError(t, client.Publish(t.Context(), "app|managed-resources|guestbook|1.8.3", "").Err())
	c.expect(t, ">4", "$8", "pmessage", "$23", "app|managed-resources|*", "$37", "app|managed-resources|guestbook|1.8.3", "$0", "")
}

// All other commands are refused, after the replies to earlier ones, and end the connection.
func TestHubReadsNothingElse(t *testing.T) {
	spoke := redistest.Start(t)
	dial := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address}, KeyPrefix: "mine."})
	for _, command := range []string{
		"GET repo|https://git|creds", "GET mfst|x", "GET app|resources-tree|x", "GET mine.app|other|x", "GET", "GET mine.app|resources-tree|a mine.x",
		"SET mine.app|resources-tree|a b", "DEL mine.app|resources-tree|a", "KEYS *", "FLUSHALL", "CONFIG GET *", "EVAL return 0", "AUTH x",
		"SUBSCRIBE mine.app|managed-resources|a other", "PSUBSCRIBE *", "PSUBSCRIBE mine.app|*", "HELLO 2", "CLIENT KILL TYPE normal",
		"CLIENT TRACKING ON BCAST", "CLIENT TRACKING ON BCAST PREFIX", "CLIENT TRACKING ON BCAST PREFIX repo|",
		"CLIENT TRACKING ON REDIRECT 3 PREFIX mine.app|", "CLIENT TRACKING ON BCAST REDIRECT 3", "MULTI", "RESET", "MONITOR", "DEBUG SLEEP 1",
	} {
		t.Run(command, func(t *testing.T) {
			c := dial(t).sendHello(t)
			c.send(t, "PING\r\n"+command+"\r\nPING\r\n")
			c.expect(t, "+PONG")
			answer := c.expectClosed(t)
			require.True(t, strings.HasPrefix(answer, "-NOPERM "), answer)
			require.Equal(t, 1, strings.Count(answer, "\r\n"), "nothing is done after it")
		})
	}
}

// A prefix may contain characters that are special in a pattern. The hub gets messages of channels that begin with it literally, and not
// what somebody else's Argo CD announces in the same Redis.
func TestKeyPrefixWithWildcards(t *testing.T) {
	const prefix, pattern = `x*[y]?^\`, `x\*\[y\]\?\^\\`
	spoke := redistest.Start(t)
	client := redis.Access{Address: spoke.Address}.Client()
	defer client.Close()
	require.NoError(t, client.Set(t.Context(), prefix+"app|resources-tree|a|1.8.3", "tree", 0).Err())
	dial := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address}, KeyPrefix: prefix})
	c := dial(t).sendHello(t)
	c.send(t, command("GET", prefix+"app|resources-tree|a|1.8.3")+command("SUBSCRIBE", prefix+"app|managed-resources|a"))
	c.expect(t, "$4", "tree", ">3", "$9", "subscribe", "$31", prefix+"app|managed-resources|a", ":1")
	c.send(t, command("UNSUBSCRIBE", prefix+"app|managed-resources|a"))
	c.expect(t, ">3", "$11", "unsubscribe", "$31", prefix+"app|managed-resources|a", ":0")
	c.send(t, command("PSUBSCRIBE", pattern+"app|managed-resources|*"))
	c.expect(t, ">3", "$10", "psubscribe", "$37", pattern+"app|managed-resources|*", ":1")
	for _, channel := range []string{"xOyO^\\", "x**y]?^\\", prefix} {
		require.NoError(t, client.Publish(t.Context(), channel+"app|managed-resources|a|1.8.3", channel).Err())
	}
	c.expect(t, ">4", "$8", "pmessage", "$37", pattern+"app|managed-resources|*", "$37", prefix+"app|managed-resources|a|1.8.3", "$8", prefix)

	for _, words := range [][]string{
		{"PSUBSCRIBE", prefix + "app|managed-resources|*"}, {"PSUBSCRIBE", pattern + "*"}, {"PSUBSCRIBE", pattern + "app|managed-resource"},
		{"PSUBSCRIBE", `\`}, {"PSUBSCRIBE", ""}, {"SUBSCRIBE", pattern + "app|managed-resources|a"}, {"PUNSUBSCRIBE", "x*"},
	} {
		c := dial(t).sendHello(t)
		c.send(t, command(words...))
		require.True(t, strings.HasPrefix(c.expectClosed(t), "-NOPERM "), "%q", words)
	}
}

func command(words ...string) string { return string(resp.AppendCommand(nil, words...)) }

func TestMalformedCommandsEndTheConnection(t *testing.T) {
	spoke := redistest.Start(t)
	dial := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address}})
	for name, words := range map[string]string{
		"no number":     "*x\r\n",
		"huge array":    "*1000000\r\n",
		"huge bulk":     "*2\r\n$3\r\nGET\r\n$1000000000\r\n",
		"negative bulk": "*2\r\n$3\r\nGET\r\n$-5\r\n",
		"no end":        strings.Repeat("x", 64<<10),
		"many words":    "*64\r\n" + strings.Repeat("$2000\r\n"+strings.Repeat("x", 2000)+"\r\n", 64),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t).sendHello(t)
			_, _ = io.WriteString(c, words) // it may have ended in the middle
			_, _ = io.ReadAll(c.answers)
		})
	}
	c := dial(t)
	c.send(t, "PING\r\n")
	require.Contains(t, c.expectClosed(t), "-NOPROTO")

	// What comes in pieces is the same.
	c = dial(t).sendHello(t)
	for _, b := range []byte("*1\r\n$4\r\nPING\r\n") {
		c.send(t, string(b))
	}
	c.expect(t, "+PONG")
}

// The hub is sent the reason why Redis cannot be reached.
func TestRedisUnreachable(t *testing.T) {
	spoke := redistest.Start(t, "--requirepass", "secret")
	for want, access := range map[string]redis.Access{
		"WRONGPASS":          {Address: spoke.Address, Password: "wrong"},
		"connection refused": {Address: "127.0.0.1:1"},
		"no such file":       {Address: spoke.Address, Folder: filepath.Join(t.TempDir(), "none")},
	} {
		c := serve(t, redis.Options{Access: access})(t)
		c.send(t, "HELLO 3\r\n")
		answer := c.expectClosed(t)
		require.Contains(t, answer, "-ERR the spoke's Redis cannot be reached")
		require.Contains(t, answer, want)
	}
}

// Redis may use TLS, with a certificate of a CA that the agent trusts.
func TestRedisOverTLS(t *testing.T) {
	redisCA, err := pki.NewCA(pki.CAOptions{CommonName: "redis"})
	require.NoError(t, err)
	pair, err := redisCA.IssueServer(pki.ServerOptions{CommonName: "redis", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	folder := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	ca := file("ca.crt", redisCA.PEM().Certificate)
	spoke := redistest.StartTLS(t, file("tls.crt", pair.Certificate), file("tls.key", pair.Key), ca)
	roots, err := certs.New(certs.Options{
		Name: "redis", Logger: slog.New(slog.DiscardHandler), Metrics: certs.NewMetrics(prometheus.NewRegistry()),
		Roots: certs.RootsFile(ca), RootsHint: "none",
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = roots.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	require.NoError(t, roots.Wait(t.Context()))

	serve(t, redis.Options{Access: redis.Access{Address: spoke.Address, TLS: true, Roots: roots}})(t).sendHello(t)
	serve(t, redis.Options{Access: redis.Access{Address: spoke.Address, TLS: true, InsecureSkipVerify: true}})(t).sendHello(t)
	c := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address, TLS: true}})(t)
	c.send(t, "HELLO 3\r\n")
	require.Contains(t, c.expectClosed(t), "unknown authority")
}

// The password may change: it is read for each connection.
func TestCredentialsFromFiles(t *testing.T) {
	spoke := redistest.Start(t, "--requirepass", "first")
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "auth"), []byte("first\n"), 0o600))
	access := redis.Access{Address: spoke.Address, Folder: folder}
	dial := serve(t, redis.Options{Access: access})
	dial(t).sendHello(t)
	client := access.Client()
	defer client.Close()
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "second").Err())
	require.NoError(t, os.WriteFile(filepath.Join(folder, "auth"), []byte("second\n"), 0o600))
	dial(t).sendHello(t)
}

// When Redis disconnects, the hub is disconnected, and connects again.
func TestRedisDisconnects(t *testing.T) {
	spoke := redistest.Start(t)
	c := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address}})(t).sendHello(t)
	c.send(t, "PING\r\n")
	c.expect(t, "+PONG")
	spoke.Stop()
	require.Empty(t, c.expectClosed(t))
}

// A hub that takes the agent for a Redis of its own logs in, with a password.
func TestRejectedCommandsAreLoggedWithoutTheirArguments(t *testing.T) {
	spoke := redistest.Start(t)
	log := &logtest.Log{}
	dial := serve(t, redis.Options{Access: redis.Access{Address: spoke.Address}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	for _, command := range []string{"AUTH hunter2", "SET app|hunter2 x", "GET hunter2", "SUBSCRIBE hunter2", "hunter2"} {
		c := dial(t).sendHello(t)
		c.send(t, command+"\r\n")
		require.Contains(t, c.expectClosed(t), "-NOPERM ")
	}
	require.Contains(t, log.String(), "command=auth arguments=1")
	require.NotContains(t, log.String(), "hunter2")
}
