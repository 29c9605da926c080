package sessions

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connected   prometheus.Gauge
	connections prometheus.Counter
	deferred    prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argocd_principal_connected_agents", Help: "Agents that are connected to this principal.",
		}),
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_principal_agent_connections_total", Help: "Connections of agents since the start.",
		}),
		deferred: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_principal_agent_connections_deferred_total", Help: "Agents that were told to connect later, since more came at once than are served in a second.",
		}),
	}
	r.MustRegister(m.connected, m.connections, m.deferred)
	return m
}
