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
	treeHub   = "app|resources-tree|east_guestbook|1.8.3.gz"
	treeSpoke = "app|resources-tree|guestbook|1.8.3.gz"
	newsHub   = "app|managed-resources|east_guestbook|1.8.3"
	newsSpoke = "app|managed-resources|guestbook|1.8.3"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// world is one agent, "east".
type world struct {
	t        *testing.T
	agent    *spoketest.Agent
	roster   *spoketest.Roster
	redis    *redis.Client
	spokes   *spokes.Spokes
	registry *prometheus.Registry
}

func begin(t *testing.T, size int64, change func(*spoketest.Agent)) *world {
	t.Helper()
	server := redistest.Start(t)
	w := &world{t: t, agent: spoketest.NewAgent(t, server.Address), roster: spoketest.NewRoster(), registry: prometheus.NewRegistry()}
	change(w.agent)
	w.redis = redistest.Client(t, server.Address, 3)
	w.roster.Own("east_guestbook", "east", "guestbook")
	w.roster.Own("sentinel", "east", "sentinel")
	w.arrive()
	w.spokes = spokes.New(spokes.Options{
		Dial:   func(ctx context.Context, _ string) (net.Conn, error) { return w.agent.Dial(ctx) },
		Roster: w.roster, CacheSize: size, Timeout: patience, Registerer: w.registry,
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
		q := w.ask("app|resources-tree|east_guestbook|first")
		_, failure, err := q.Wait(t.Context())
		return failure == nil && err == nil
	}, patience, time.Millisecond)
	return w
}

func plain(*spoketest.Agent) {}

func (w *world) arrive() {
	w.agent.Mend()
	w.roster.Set(directory.Agent{Name: "east", Connected: true, Since: time.Now()})
}

func (w *world) leave() {
	w.agent.Cut()
	w.roster.Set(directory.Agent{Name: "east", Since: time.Now()})
}

func (w *world) ask(key string) spokes.Question {
	target, ok := w.spokes.Find(keys.Space{}.Key([]byte(key)))
	require.True(w.t, ok)
	return w.spokes.Ask(target)
}

// get returns what is kept under a key, and fails if nothing is said about it.
func (w *world) get(key string) string {
	w.t.Helper()
	q := w.ask(key)
	value, failure, err := q.Wait(w.t.Context())
	require.NoError(w.t, failure)
	require.NoError(w.t, err)
	text, _ := resp.Text(value)
	return string(text)
}

func (w *world) set(key, value string) {
	w.t.Helper()
	require.NoError(w.t, w.redis.Set(w.t.Context(), key, value, 0).Err())
}

// follower hears what agents announce.
type follower chan string

func (f follower) Message(_, channel string, payload []byte) {
	select {
	case f <- channel + "=" + string(payload):
	default:
	}
}

// tell is set, and waits until the agent's feed has told of it.
func (w *world) tell(key, value string) {
	w.t.Helper()
	heard := make(follower, 100)
	w.spokes.Subscribe(heard, "app|managed-resources|sentinel|1")
	defer w.spokes.Leave(heard)
	w.set(key, value)
	w.redis.Publish(w.t.Context(), "app|managed-resources|sentinel|1", value)
	for message := range heard {
		if strings.HasSuffix(message, "="+value) {
			return
		}
	}
}

// gets is how often the agent was asked for a value.
func (w *world) gets() int { return w.agent.Asked("GET") }

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
