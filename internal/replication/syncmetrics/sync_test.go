package syncmetrics_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/syncmetrics"
)

const facet = converge.Facet("application")

// read reads all metrics, as name{label="value"}, in the order of the labels' names; of a histogram its count, its sum, and
// how many of its buckets something is in.
func read(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))
			h := m.GetHistogram()
			if h == nil {
				all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
				continue
			}
			all[name+" count"], all[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			before := uint64(0)
			for _, b := range h.GetBucket() {
				if b.GetCumulativeCount() > before {
					all[name+" buckets"]++
				}
				before = b.GetCumulativeCount()
			}
		}
	}
	return all
}

func ack(c converge.Code) converge.Ack {
	return converge.Ack{Facet: facet, Key: "guestbook", Seq: 1, Result: converge.Result{Code: c}}
}

// Whoever reads the debug lines knows what was done to which object, and no payload.
func TestEveryMessageIsOneDebugLine(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("agent", "a")
	o := syncmetrics.NewSync("test", prometheus.NewRegistry(), 2).Observer("a", logger)
	put := converge.Put{Facet: facet, Key: "guestbook", Seq: 1, Object: converge.Object{State: converge.State{UID: "uid"}, Payload: []byte("secret")}}
	for want, call := range map[string]func(){
		`msg="Sent change" agent=a operation=put facet=application key=guestbook uid=uid version=`: func() { o.Sent(put, time.Second) },
		`msg="Sent change" agent=a operation=delete facet=application key=guestbook uid=uid`: func() {
			o.Sent(converge.Delete{Facet: facet, Key: "guestbook", UID: "uid"}, time.Second)
		},
		`msg="Received ack" agent=a facet=application key=guestbook result=done reason="" lag=1s`:     func() { o.Acknowledged(ack(converge.Done), time.Second) },
		`msg="Applied change" agent=a operation=put facet=application key=guestbook uid=uid version=`: func() { o.Applied(put, ack(converge.Refused), time.Second) },
	} {
		log.Reset()
		call()
		require.Contains(t, log.String(), want)
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
		require.Contains(t, log.String(), "lag=1s")
		require.NotContains(t, log.String(), "secret")
	}
}

func TestAnswersAreCountedByResult(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := syncmetrics.NewSync("test", registry, 2).Observer("a", slog.New(slog.DiscardHandler))
	o.Acknowledged(ack(converge.Done), time.Second)
	o.Acknowledged(ack(converge.Done), 3*time.Second)
	o.Acknowledged(ack(converge.Refused), time.Second)
	o.Acknowledged(ack(converge.Retry), 0)
	metrics := read(t, registry)
	require.Equal(t, 2.0, metrics[`test_sync_acks_total{facet="application",result="done"}`])
	require.Equal(t, 1.0, metrics[`test_sync_acks_total{facet="application",result="refused"}`])
	require.Equal(t, 1.0, metrics[`test_sync_acks_total{facet="application",result="retry"}`])
	require.Equal(t, 3.0, metrics[lag+" count"], "an answer that ends nothing has no lag")
	require.InDelta(t, 5, metrics[lag+" sum"], 1e-9)
}

const lag = `test_sync_lag_seconds{facet="application"}`

// What is measured spans what is reached, some milliseconds, and what may happen, minutes of disconnection.
func TestLagBucketsAreFineWhereItMatters(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := syncmetrics.NewSync("test", registry, 2).Observer("a", slog.New(slog.DiscardHandler))
	for _, lag := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, time.Second, time.Minute} {
		o.Acknowledged(ack(converge.Done), lag)
	}
	require.Equal(t, 4.0, read(t, registry)[lag+" buckets"])
}

// All agents together have the same few metrics: their number must not grow with that of agents.
func TestAgentsShareMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	sync := syncmetrics.NewSync("test", registry, 2)
	for _, agent := range []string{"a", "b", "c"} {
		o := sync.Observer(agent, slog.New(slog.DiscardHandler))
		o.Acknowledged(ack(converge.Done), time.Second)
		o.Repaired(facet, "guestbook", converge.Result{Code: converge.Retry})
	}
	require.Equal(t, 3.0, read(t, registry)[`test_sync_acks_total{facet="application",result="done"}`])
	require.Equal(t, 3.0, read(t, registry)[`test_sync_repairs_total{facet="application",result="retry"}`])
}

// Paused deletions show until they are resumed, in the metrics of their agent only.
func TestPausedDeletionsAreShown(t *testing.T) {
	const a, b = `test_sync_guarded_deletions{agent="a",facet="application"}`, `test_sync_guarded_deletions{agent="b",facet="application"}`
	registry := prometheus.NewRegistry()
	sync := syncmetrics.NewSync("test", registry, 2)
	one, other := sync.Observer("a", slog.New(slog.DiscardHandler)), sync.Observer("b", slog.New(slog.DiscardHandler))
	require.Empty(t, read(t, registry))
	one.DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 12, Total: 40, Token: "0badcafe"})
	other.DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 99, Total: 100, Token: "deadbeef"})
	require.Equal(t, map[string]float64{a: 12, b: 99}, read(t, registry))
	one.DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 13, Total: 40, Token: "0ddba115"})
	require.Equal(t, map[string]float64{a: 13, b: 99}, read(t, registry))
	one.DeletionsResumed(facet)
	require.Equal(t, map[string]float64{b: 99}, read(t, registry))
}

// An agent has one hub, which has no name. Its series goes too.
func TestPausedDeletionsOfAnAgentsOwnMetricsAreShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := syncmetrics.NewSync("test", registry, 1).Observer("", slog.New(slog.DiscardHandler))
	o.DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 12, Total: 40, Token: "0badcafe"})
	require.Equal(t, map[string]float64{`test_sync_guarded_deletions{agent="",facet="application"}`: 12}, read(t, registry))
	o.DeletionsResumed(facet)
	require.Empty(t, read(t, registry))
}

// An accident may pause deletions of thousands of agents. Those beyond the limit are one series.
func TestSeriesByAgentAreLimited(t *testing.T) {
	registry := prometheus.NewRegistry()
	sync := syncmetrics.NewSync("test", registry, 1)
	observers := map[string]converge.Observer{}
	for i, agent := range []string{"a", "b", "c"} {
		observers[agent] = sync.Observer(agent, slog.New(slog.DiscardHandler))
		observers[agent].DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 11 + i, Total: 40, Token: agent})
	}
	const a, c, rest = `test_sync_guarded_deletions{agent="a",facet="application"}`, `test_sync_guarded_deletions{agent="c",facet="application"}`,
		`test_sync_guarded_deletions{agent="",facet="application"}`
	require.Equal(t, map[string]float64{a: 11, rest: 25}, read(t, registry))
	observers["b"].DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 20, Total: 40, Token: "b2"})
	require.Equal(t, map[string]float64{a: 11, rest: 33}, read(t, registry))
	observers["a"].DeletionsResumed(facet)
	observers["c"].DeletionsResumed(facet)
	require.Equal(t, map[string]float64{rest: 20}, read(t, registry))
	observers["c"].DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 13, Total: 40, Token: "c"})
	require.Equal(t, map[string]float64{c: 13, rest: 20}, read(t, registry))
	observers["b"].DeletionsResumed(facet)
	observers["b"].DeletionsResumed(facet)
	require.Equal(t, map[string]float64{c: 13, rest: 0}, read(t, registry))
}

func TestRepairIsLogged(t *testing.T) {
	var log bytes.Buffer
	o := syncmetrics.NewSync("test", prometheus.NewRegistry(), 2).Observer("", slog.New(slog.NewTextHandler(&log, nil)))
	o.Repaired(facet, "guestbook", converge.Result{Code: converge.Refused, Reason: "a webhook said no"})
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	for _, want := range []string{"level=WARN", "Refused to restore", "key=guestbook", "result=refused", `reason="a webhook said no"`} {
		require.Contains(t, log.String(), want)
	}
	log.Reset()
	o.Repaired(facet, "guestbook", converge.Result{Code: converge.Retry, Reason: "it is being deleted"})
	require.Empty(t, log.String(), "nothing is restored")
	o.Repaired(facet, "guestbook", converge.Result{Code: converge.Done})
	require.Contains(t, log.String(), `level=INFO msg="Restored drifted replica object"`)
}

// The backlog is read when somebody looks, and not remembered.
func TestBacklogIsReadWhenScraped(t *testing.T) {
	registry := prometheus.NewRegistry()
	sizes := map[converge.Facet]int{facet: 1, "application-intent": 2}
	syncmetrics.Backlog("test", registry, []converge.Facet{facet, "application-intent"}, func(f converge.Facet) int { return sizes[f] })
	require.Equal(t, map[string]float64{
		`test_sync_dirty_keys{facet="application"}`: 1, `test_sync_dirty_keys{facet="application-intent"}`: 2,
	}, read(t, registry))
	sizes[facet] = 17
	require.Equal(t, 17.0, read(t, registry)[`test_sync_dirty_keys{facet="application"}`])
}
