package routes

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ responses, bytes, rejections *prometheus.CounterVec }

func newMetrics(registerer prometheus.Registerer, table *Table, server *Server) metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"type"})
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	m := metrics{
		responses:  counter("argocd_xds_responses_total", "Responses that were sent to clients, by the type of resource."),
		bytes:      counter("argocd_xds_response_bytes_total", "Bytes of resources in responses, by the type of resource."),
		rejections: counter("argocd_xds_rejections_total", "Responses that clients rejected (NACK), by the type of resource."),
	}
	registerer.MustRegister(m.responses, m.bytes, m.rejections,
		gauge("argocd_xds_agents", "Agents whose tunnel a principal holds.", func() int { held, _ := table.hosts.counts(); return held }),
		gauge("argocd_xds_unknown_hosts", "Hosts that clients asked for, and whose tunnel no principal holds.",
			func() int { _, strangers := table.hosts.counts(); return strangers }),
		gauge("argocd_xds_clients", "xDS streams of clients.", func() int { return len(server.Subscribers()) }))
	return m
}
