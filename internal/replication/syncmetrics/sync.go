// Package syncmetrics holds the metrics that show how synchronisation fares.
package syncmetrics

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Sync counts what happens to facets, of all peers together.
type Sync struct {
	lag     *prometheus.HistogramVec
	acks    *prometheus.CounterVec
	repairs *prometheus.CounterVec
	failed  *prometheus.CounterVec
	paused  *pausedDeletions
}

// NewSync makes the metrics and registers them. namespace begins their names: "argocd_principal" or "argocd_agent". Of so many
// agents there are series by agent.
func NewSync(namespace string, registerer prometheus.Registerer, agents int) *Sync {
	paused := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "sync", Name: "guarded_deletions",
		Help: "Deletions that wait for an operator to confirm them, because a resync would delete too much or they went with a namespace. The agent is empty in an agent's own metrics, and for agents beyond the principal's --metrics-agents.",
	}, []string{"facet", "agent"})
	s := &Sync{
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "sync", Name: "lag_seconds",
			Help:    "Time from noticing a change until the other side acknowledged the newest state of the object.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"facet"}),
		acks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "sync", Name: "acks_total",
			Help: "Acks received from the other side, by result: done, retry (it failed and is tried again) or refused.",
		}, []string{"facet", "result"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "sync", Name: "repairs_total",
			Help: "Replica objects that drifted (others changed or deleted them) and were restored, by result.",
		}, []string{"facet", "result"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "sync", Name: "failed_writes_total",
			Help: "Writes of replica objects to the local API server that failed, by reason: AdmissionWebhook, AdmissionPolicy, Refused (by the program's own rules), one of Kubernetes' or Other.",
		}, []string{"facet", "reason"}),
		paused: newPausedDeletions(paused, agents),
	}
	registerer.MustRegister(s.lag, s.acks, s.repairs, s.failed, paused)
	return s
}

// Backlog registers a gauge of the keys of each facet that may differ from what the other side holds, read when it is
// scraped.
func Backlog(namespace string, registerer prometheus.Registerer, facets []converge.Facet, size func(converge.Facet) int) {
	for _, f := range facets {
		registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "sync", Name: "dirty_keys",
			Help:        "Objects that may differ from what the other side holds: waiting to be sent, or to be acknowledged.",
			ConstLabels: prometheus.Labels{"facet": string(f)},
		}, func() float64 { return float64(size(f)) }))
	}
}

// FailedWrite counts a write to the local API server that failed, by one of a few reasons.
func (s *Sync) FailedWrite(f converge.Facet, reason string) {
	s.failed.WithLabelValues(string(f), reason).Inc()
}

// Observer returns the observer of the sessions with one agent. At debug level it logs every Put, Delete and Ack.
func (s *Sync) Observer(agent string, logger *slog.Logger) converge.Observer {
	return observer{s, agent, logger}
}

type observer struct {
	*Sync
	agent  string
	logger *slog.Logger
}

// attributes are those of a Put or Delete. Payloads may be secrets and are not among them.
func attributes(m converge.Message) []any {
	switch m := m.(type) {
	case converge.Put:
		return []any{"operation", "put", "facet", m.Facet, "key", m.Key, "uid", m.UID, "version", m.Version, "bytes", len(m.Payload)}
	case converge.Delete:
		return []any{"operation", "delete", "facet", m.Facet, "key", m.Key, "uid", m.UID}
	default:
		return nil
	}
}

func (o observer) Sent(m converge.Message, lag time.Duration) {
	o.logger.Debug("Sent change", append(attributes(m), "lag", lag.String())...)
}

func (o observer) Acknowledged(a converge.Ack, lag time.Duration) {
	o.acks.WithLabelValues(string(a.Facet), a.Code.String()).Inc()
	if lag > 0 {
		o.lag.WithLabelValues(string(a.Facet)).Observe(lag.Seconds())
	}
	o.logger.Debug("Received ack", "facet", a.Facet, "key", a.Key, "result", a.Code.String(), "reason", a.Reason, "lag", lag.String())
}

func (o observer) Applied(m converge.Message, a converge.Ack, lag time.Duration) {
	o.logger.Debug("Applied change", append(attributes(m), "result", a.Code.String(), "reason", a.Reason, "lag", lag.String())...)
}

func (o observer) Repaired(f converge.Facet, k converge.Key, r converge.Result) {
	o.repairs.WithLabelValues(string(f), r.Code.String()).Inc()
	logger := o.logger.With("facet", f, "key", k, "result", r.Code.String(), "reason", r.Reason)
	switch r.Code {
	case converge.Done:
		logger.Info("Restored drifted replica object")
	case converge.Refused:
		logger.Warn("Refused to restore drifted replica object; retrying")
	default: // nothing is restored yet, such as while the object is being deleted
		logger.Debug("Failed to restore drifted replica object; retrying")
	}
}

func (o observer) Removed(f converge.Facet, k converge.Key, r converge.Result) {
	if r.Code == converge.Refused {
		o.logger.Warn("Refused to delete replica object", "facet", f, "key", k, "reason", r.Reason)
		return
	}
	o.logger.Info("Deleted replica object", "facet", f, "key", k)
}

func (o observer) Compared(converge.Facet) {}

func (o observer) DeletionsPaused(p converge.PausedDeletions) {
	o.paused.set(p.Facet, o.agent, p.Deletions)
}

func (o observer) DeletionsResumed(f converge.Facet) {
	o.paused.clear(f, o.agent)
	o.logger.Info("No deletions are paused any more", "facet", f, "agent", o.agent)
}
