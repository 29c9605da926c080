package spokes_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spoketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	treeHub      = "app|resources-tree|east_guestbook|1.8.3.gz"
	treeSpoke    = "app|resources-tree|guestbook|1.8.3.gz"
	channelHub   = "app|managed-resources|east_guestbook|1.8.3"
	channelSpoke = "app|managed-resources|guestbook|1.8.3"
)

// testTimeout is how long a test waits for what must come.
const testTimeout = 2 * time.Minute

// world is one agent, "east".
type world struct {
	t         *testing.T
	agent     *spoketest.Agent
	directory *spoketest.Directory
	redis     *redis.Client
	spokes    *spokes.Spokes
	registry  *prometheus.Registry
}

func begin(t *testing.T, size int64, change func(*spoketest.Agent)) *world {
	t.Helper()
	server := redistest.Start(t)
	w := &world{t: t, agent: spoketest.NewAgent(t, server.Address), directory: spoketest.NewDirectory(), registry: prometheus.NewRegistry()}
	change(w.agent)
	w.redis = redistest.Client(t, server.Address, 3)
	w.directory.SetOwner("east_guestbook", "east", "guestbook")
	w.directory.SetOwner("sentinel", "east", "sentinel")
	w.arrive()
	w.spokes = spokes.New(spokes.Options{
		Dial:      func(ctx context.Context, _ string) (net.Conn, error) { return w.agent.Dial(ctx) },
		Directory: w.directory, CacheSize: size, Timeout: testTimeout, Registerer: w.registry,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.spokes.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	require.Eventually(t, func() bool { // until it runs
		r := w.ask("app|resources-tree|east_guestbook|first")
		_, failure, err := r.Wait(t.Context())
		return failure == nil && err == nil
	}, testTimeout, time.Millisecond)
	return w
}

func plain(*spoketest.Agent) {}

func (w *world) arrive() {
	w.agent.Reconnect()
	w.directory.Set(directory.Agent{Name: "east", Connected: true, Since: time.Now()})
}

func (w *world) leave() {
	w.agent.Disconnect()
	w.directory.Set(directory.Agent{Name: "east", Since: time.Now()})
}

func (w *world) ask(key string) spokes.Read {
	target, ok := w.find(key)
	require.True(w.t, ok)
	return w.spokes.StartRead(target)
}

func (w *world) find(key string) (spokes.Target, bool) {
	return w.spokes.Find(keys.Space{}.Key([]byte(key)))
}

// get returns what is kept under a key, and fails if nothing is said about it.
func (w *world) get(key string) string {
	w.t.Helper()
	r := w.ask(key)
	value, failure, err := r.Wait(w.t.Context())
	require.NoError(w.t, failure)
	require.NoError(w.t, err)
	text, _ := resp.Text(value)
	return string(text)
}

func (w *world) set(key, value string) {
	w.t.Helper()
	require.NoError(w.t, w.redis.Set(w.t.Context(), key, value, 0).Err())
}

// subscriber receives messages.
type subscriber chan string

func (f subscriber) Message(_, channel string, payload []byte) {
	select {
	case f <- channel + "=" + string(payload):
	default:
	}
}

// setAndWait is set, and waits until the invalidation has come.
func (w *world) setAndWait(key, value string) {
	w.t.Helper()
	heard := make(subscriber, 100)
	w.spokes.Subscribe(heard, "app|managed-resources|sentinel|1")
	defer w.spokes.UnsubscribeAll(heard)
	w.set(key, value)
	w.redis.Publish(w.t.Context(), "app|managed-resources|sentinel|1", value)
	for message := range heard {
		if strings.HasSuffix(message, "="+value) {
			return
		}
	}
}

// gets is how often the agent was asked for a value.
func (w *world) gets() int { return w.agent.Commands("GET") }

func (w *world) metric(name, label string) (sum float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
