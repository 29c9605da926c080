package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type metrics struct {
	dials         *prometheus.CounterVec
	conversations *prometheus.GaugeVec
	bytes         *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_principal_tunnel_dials_total", Help: "Conversations with agents that components of the hub asked for.",
		}, []string{"target", "result"}),
		conversations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argocd_principal_tunnel_conversations", Help: "Conversations between components of the hub and agents.",
		}, []string{"target"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_principal_tunnel_bytes_total", Help: "What conversations carried.",
		}, []string{"target", "direction"}),
	}
	r.MustRegister(m.dials, m.conversations, m.bytes)
	return m
}

func (m metrics) way(target, direction string) prometheus.Counter {
	return m.bytes.WithLabelValues(target, direction)
}

// result names what became of a Dial.
func result(err error) string {
	switch status.Code(err) {
	case codes.OK:
		return "taken"
	case codes.NotFound:
		return "unknown"
	case codes.FailedPrecondition:
		return "away"
	case codes.DeadlineExceeded:
		return "timeout"
	default:
		return "error"
	}
}
