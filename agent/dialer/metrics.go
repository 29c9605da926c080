package dialer

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connected   prometheus.Gauge
	connections prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argocd_agent_connection_status", Help: "1 while the agent is connected to a principal, otherwise 0.",
		}),
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_agent_connections_total", Help: "Connections to a principal since the start.",
		}),
	}
	r.MustRegister(m.connected, m.connections)
	return m
}
