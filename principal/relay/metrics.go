package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type metrics struct {
	dials       *prometheus.CounterVec
	connections *prometheus.GaugeVec
	bytes       *prometheus.CounterVec
	forwarded   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_principal_tunnel_dials_total", Help: "Tunnel connections to agents that components of the hub dialled.",
		}, []string{"target", "result"}),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argocd_principal_tunnel_connections", Help: "Open tunnel connections between components of the hub and agents.",
		}, []string{"target"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_principal_tunnel_bytes_total", Help: "Bytes that tunnel connections carried.",
		}, []string{"target", "direction"}),
	}
	m.forwarded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_principal_tunnel_forwarded_total", Help: "Calls that were forwarded to another principal, and what became of them.",
	}, []string{"call", "result"})
	r.MustRegister(m.dials, m.connections, m.bytes, m.forwarded)
	return m
}

// dialResult is the label for how a Dial ended.
func dialResult(err error) string {
	switch status.Code(err) {
	case codes.OK:
		return "accepted"
	case codes.NotFound:
		return "unknown"
	case codes.FailedPrecondition:
		return "disconnected"
	case codes.DeadlineExceeded:
		return "timeout"
	default:
		return "error"
	}
}
