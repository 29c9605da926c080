package peers

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a connection to another principal ended, or did not begin.
const (
	failed  = "failed"
	invalid = "invalid"
)

type metrics struct {
	connected prometheus.Gauge
	failures  *prometheus.CounterVec
}

func newMetrics(o Options) metrics {
	m := metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: o.Prefix + "_peers_connected", Help: "Principals of the hub that this process is connected to.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: o.Prefix + "_peer_failures_total",
			Help: "Connections to principals of the hub that failed or ended, or were invalid for what the other side said.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{failed, invalid} {
		m.failures.WithLabelValues(reason)
	}
	o.Registerer.MustRegister(m.connected, m.failures, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: o.Prefix + "_peer_agents", Help: "Agents whose sessions other principals hold.",
	}, func() float64 {
		_, elsewhere := o.Roster.count(Session)
		return float64(elsewhere)
	}))
	return m
}

// fail counts a connection that failed or ended. That a principal has several addresses is no failure.
func (m metrics) fail(err error) {
	said := nonsenseError{}
	switch {
	case errors.Is(err, errKnown):
	case errors.As(err, &said):
		m.failures.WithLabelValues(invalid).Inc()
	default:
		m.failures.WithLabelValues(failed).Inc()
	}
}
