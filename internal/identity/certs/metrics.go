package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the figures that all Sources and credentials of a process share. The label name is the Source's name for
// its certificate, and that name with "-ca" appended for its trusted CAs.
type Metrics struct {
	reloads  *prometheus.CounterVec
	notAfter *prometheus.GaugeVec
	failures *prometheus.CounterVec
}

// The values of the label result.
const (
	resultSuccess = "success"
	resultFailure = "failure"
)

// NewMetrics makes the metrics and registers them, unless the registerer is nil.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	return &Metrics{
		reloads: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_agent_certificate_reloads_total",
			Help: "Changes of TLS certificates and CAs after the first load, by result: success (in use now) or failure (the last good stays in use).",
		}, []string{"name", "result"}),
		notAfter: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argocd_agent_certificate_not_after_timestamp_seconds",
			Help: "When the TLS certificate in use expires, or the last of the trusted CAs.",
		}, []string{"name"}),
		failures: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_agent_tls_handshake_failures_total",
			Help: "TLS handshakes that failed on the server side, by reason.",
		}, []string{"name", "reason"}),
	}
}

// Expires says when a certificate in use ends that no Source has.
func (m *Metrics) Expires(name string, at time.Time) {
	m.notAfter.WithLabelValues(name).Set(float64(at.Unix()))
}
