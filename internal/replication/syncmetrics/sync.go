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
	brakes  *prometheus.GaugeVec
}

// NewSync makes the metrics and registers them. namespace begins their names: "argocd_principal" or "argocd_agent".
func NewSync(namespace string, registerer prometheus.Registerer) *Sync {
	s := &Sync{
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "sync", Name: "lag_seconds",
			Help:    "Time from a change's being noticed until the other side acknowledged the newest state of the object.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"facet"}),
		acks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "sync", Name: "acks_total",
			Help: "Answers of the other side, by result: done, retry (it did not work and is tried again) or refused.",
		}, []string{"facet", "result"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "sync", Name: "repairs_total",
			Help: "Local objects that were changed or deleted by others and put back, by result.",
		}, []string{"facet", "result"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "sync", Name: "failed_writes_total",
			Help: "Writes of replica objects to the local API server that failed, by reason: AdmissionWebhook, AdmissionPolicy, Refused (by the program's own rules), one of Kubernetes' or Other.",
		}, []string{"facet", "reason"}),
		brakes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "sync", Name: "held_deletions",
			Help: "Deletions that wait for a person's word, because a comparison would delete more than a fifth of a facet.",
		}, []string{"facet", "agent"}),
	}
	registerer.MustRegister(s.lag, s.acks, s.repairs, s.failed, s.brakes)
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

// Observer returns the observer for the conversations with one agent.
func (s *Sync) Observer(agent string, logger *slog.Logger) converge.Observer {
	return observer{s, agent, logger}
}

type observer struct {
	*Sync
	agent  string
	logger *slog.Logger
}

func (o observer) Acknowledged(f converge.Facet, c converge.Code, lag time.Duration) {
	o.acks.WithLabelValues(string(f), c.String()).Inc()
	if lag > 0 {
		o.lag.WithLabelValues(string(f)).Observe(lag.Seconds())
	}
}

func (o observer) Repaired(f converge.Facet, k converge.Key, r converge.Result) {
	o.repairs.WithLabelValues(string(f), r.Code.String()).Inc()
	o.logger.Info("Put back what was changed locally", "facet", f, "key", k, "result", r.Code.String(), "reason", r.Reason)
}

func (o observer) Removed(f converge.Facet, k converge.Key, r converge.Result) {
	if r.Code == converge.Refused {
		o.logger.Warn("Left in place what the other side wants gone", "facet", f, "key", k, "reason", r.Reason)
		return
	}
	o.logger.Info("Removed what the other side wants gone", "facet", f, "key", k)
}

func (o observer) DeletionsPaused(b converge.PausedDeletions) {
	o.brakes.WithLabelValues(string(b.Facet), o.agent).Set(float64(b.Deletions))
}

func (o observer) DeletionsResumed(f converge.Facet) {
	o.brakes.DeleteLabelValues(string(f), o.agent)
	o.logger.Info("No deletions are held back any more", "facet", f, "agent", o.agent)
}
