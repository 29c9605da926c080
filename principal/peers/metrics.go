package peers

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ connected prometheus.Gauge }

func newMetrics(registerer prometheus.Registerer, roster *Roster) metrics {
	m := metrics{connected: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "argocd_principal_peers_connected", Help: "Other principals of the hub that this one is connected to.",
	})}
	registerer.MustRegister(m.connected, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argocd_principal_peer_agents", Help: "Agents whose sessions other principals hold.",
	}, func() float64 {
		_, elsewhere := roster.count(Session)
		return float64(elsewhere)
	}))
	return m
}
