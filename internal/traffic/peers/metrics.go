package peers

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ connected prometheus.Gauge }

func newMetrics(o Options) metrics {
	m := metrics{connected: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: o.Prefix + "_peers_connected", Help: "Principals of the hub that this process is connected to.",
	})}
	o.Registerer.MustRegister(m.connected, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: o.Prefix + "_peer_agents", Help: "Agents whose sessions other principals hold.",
	}, func() float64 {
		_, elsewhere := o.Roster.count(Session)
		return float64(elsewhere)
	}))
	return m
}
