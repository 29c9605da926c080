package front_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	agentredis "github.com/argocd-agent-mesh/argocd-agent-mesh/agent/redis"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/front"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spoketest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup is what a test may want to be different.
type setup struct {
	hubPrefix, spokePrefix string
	redisArgs              []string
	limits                 front.Limits
	timeout                time.Duration // of agents
	drain                  time.Duration
	auth                   time.Duration // that a client has to authenticate
	tls                    *tls.Config
	upstream               *upstream.Options // instead of a hub's Redis
	agentsEnd              bool              // of the tunnel is the one that agents have, not the test's
}

// world is a hub with one agent, "east", whose application "guestbook" is "east_guestbook" on the hub.
type world struct {
	hub, redis *redistest.Redis // the hub's and the spoke's
	agent      *spoketest.Agent
	directory  *spoketest.Directory
	registry   *prometheus.Registry
	address    string // of redisproxy
	spoke      *redis.Client
	stop       func()
}

const (
	east         = "east"
	server       = "https://kubeproxy:9090/agents/east"
	treeHub      = "app|resources-tree|east_guestbook|1.8.3.gz"
	treeSpoke    = "app|resources-tree|guestbook|1.8.3.gz"
	channelHub   = "app|managed-resources|east_guestbook|1.8.3"
	channelSpoke = "app|managed-resources|guestbook|1.8.3"
	stateHub     = "app|managed-resources|east_guestbook|1.8.3.gz"
)

func begin(tb testing.TB, c setup) *world {
	tb.Helper()
	w := &world{hub: redistest.Start(tb, c.redisArgs...), redis: redistest.Start(tb), directory: spoketest.NewDirectory()}
	w.agent = spoketest.NewAgent(tb, w.redis.Address)
	w.agent.Prefix = c.spokePrefix
	w.directory.SetOwner("east_guestbook", east, "guestbook")
	w.arrive()
	w.spoke = redistest.Client(tb, w.redis.Address, 3)
	if c.timeout == 0 {
		c.timeout = testTimeout
	}
	if c.drain == 0 {
		c.drain = testTimeout
	}
	if c.auth == 0 {
		c.auth = testTimeout
	}
	w.registry = prometheus.NewRegistry()
	logger := slog.New(slog.NewTextHandler(tb.Output(), nil))
	reach := func(ctx context.Context, _ string) (net.Conn, error) { return w.agent.Dial(ctx) }
	if c.agentsEnd {
		reach = agentsEnd(tb, w.redis.Address, c.spokePrefix, logger)
	}
	agents := spokes.New(spokes.Options{
		Dial:      reach,
		Directory: w.directory, Space: keys.Space{Prefix: c.hubPrefix}, CacheSize: 64 << 20, Timeout: c.timeout,
		Registerer: w.registry, Logger: logger,
	})
	if c.upstream == nil {
		c.upstream = &upstream.Options{Address: w.hub.Address, Timeout: testTimeout}
	}
	proxy := front.New(front.Options{
		Upstream: *c.upstream,
		Space:    keys.Space{Prefix: c.hubPrefix}, Spokes: agents, Limits: c.limits, DrainTimeout: c.drain, AuthTimeout: c.auth, Registerer: w.registry, Logger: logger,
	})
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	w.address = listener.Addr().String()
	if c.tls != nil {
		listener = tls.NewListener(listener, c.tls)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var group errgroup.Group
	group.Go(func() error { agents.Run(ctx); return nil })
	group.Go(func() error { return proxy.Serve(ctx, listener) })
	w.stop = func() {
		cancel()
		require.NoError(tb, group.Wait())
	}
	tb.Cleanup(w.stop)
	return w
}

// agentsEnd serves what an agent does at its end of the tunnel, and returns what connects to it.
func agentsEnd(tb testing.TB, address, prefix string, logger *slog.Logger) func(context.Context, string) (net.Conn, error) {
	tb.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	end := agentredis.New(agentredis.Options{
		Shared: func(string) bool { return true },
		Access: agentredis.Access{Address: address}, KeyPrefix: prefix, Namespace: "argocd", Registerer: prometheus.NewRegistry(), Logger: logger,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var serving errgroup.Group
	serving.Go(func() error { return end.Serve(ctx, listener) })
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, listener.Close())
		require.NoError(tb, serving.Wait())
	})
	return func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	}
}

// arrive has the agent connect.
func (w *world) arrive() {
	w.agent.Reconnect()
	w.directory.Set(directory.Agent{Name: east, Connected: true, Since: time.Now(), Server: server})
}

// leave has the agent go.
func (w *world) leave() {
	w.agent.Disconnect()
	w.directory.Set(directory.Agent{Name: east, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Server: server})
}

func (w *world) client(tb testing.TB, protocol int, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return redistest.Client(tb, w.address, protocol, change...)
}

// direct is a client of the hub's Redis itself.
func (w *world) direct(tb testing.TB, protocol string) *rawClient {
	tb.Helper()
	r := dial(tb, w.hub.Address)
	r.do("HELLO", protocol)
	return r
}

// metric returns the value of a metric, of all its labels together, or of one value of a label.
func (w *world) metric(tb testing.TB, name, label string) (sum float64) {
	tb.Helper()
	families, err := w.registry.Gather()
	require.NoError(tb, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			fits := label == ""
			for _, l := range m.GetLabel() {
				fits = fits || l.GetValue() == label
			}
			if fits {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// rawClient is a client that sends what the test wants.
type rawClient struct {
	net.Conn

	t      testing.TB
	reader *bufio.Reader
}

func dial(tb testing.TB, address string) *rawClient {
	tb.Helper()
	return dialFrom(tb, new(net.Dialer), address)
}

func dialFrom(tb testing.TB, from *net.Dialer, address string) *rawClient {
	tb.Helper()
	conn, err := from.DialContext(tb.Context(), "tcp", address)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	r := &rawClient{Conn: conn, t: tb, reader: bufio.NewReader(conn)}
	r.setTimeout(testTimeout)
	return r
}

// testTimeout is how long a test waits for what must come.
const testTimeout = 2 * time.Minute

// setTimeout sets the deadline of the next reads and writes.
func (r *rawClient) setTimeout(d time.Duration) {
	require.NoError(r.t, r.SetDeadline(time.Now().Add(d)))
}

// mustSend sends something.
func (r *rawClient) mustSend(text string) {
	r.t.Helper()
	require.NoError(r.t, r.send(text))
}

// mustReceive returns the next reply.
func (r *rawClient) mustReceive() string {
	r.t.Helper()
	reply, err := r.receive()
	require.NoError(r.t, err)
	return reply
}

// send is mustSend for other goroutines than the test's.
func (r *rawClient) send(text string) error {
	if err := r.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(r, text)
	return err
}

// receive is mustReceive for other goroutines than the test's.
func (r *rawClient) receive() (string, error) {
	if err := r.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		return "", err
	}
	reply, err := resp.ReadReply(r.reader, math.MaxInt, nil)
	return string(reply), err
}

// expect sends commands and compares the replies, for other goroutines than the test's.
func (r *rawClient) expect(commands string, replies ...string) error {
	if err := r.send(commands); err != nil {
		return err
	}
	for _, want := range replies {
		got, err := r.receive()
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%.100q: %.100q instead of %.100q", commands, got, want)
		}
	}
	return nil
}

// requireClosed fails unless the connection ends here.
func (r *rawClient) requireClosed() {
	r.t.Helper()
	r.setTimeout(testTimeout)
	rest, err := io.ReadAll(r.reader)
	if err == nil {
		require.Empty(r.t, string(rest))
		return
	}
	require.NotErrorIs(r.t, err, context.DeadlineExceeded)
	require.NotContains(r.t, err.Error(), "timeout")
}

// do sends words as one command, and returns the reply.
func (r *rawClient) do(words ...string) string {
	r.t.Helper()
	r.mustSend(command(words...))
	return r.mustReceive()
}

func command(words ...string) string {
	text := "*" + itoa(len(words)) + "\r\n"
	for _, word := range words {
		text += bulk(word)
	}
	return text
}

func bulk(text string) string { return "$" + itoa(len(text)) + "\r\n" + text + "\r\n" }
