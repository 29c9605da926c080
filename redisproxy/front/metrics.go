package front

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	clients                              prometheus.Gauge
	refused, overrun                     prometheus.Counter
	passed, answered, failed, unaccepted prometheus.Counter
	forbidden                            prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_redisproxy_requests_total",
		Help: "Commands of clients, by whether they went to the hub's Redis or were about an agent's key, and what became of them.",
	}, []string{"kind", "result"})
	m := metrics{
		clients: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_clients", Help: "Clients that are connected.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_clients_refused_total", Help: "Clients that were turned away because there were too many.",
		}),
		overrun: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_clients_overrun_total", Help: "Clients that were disconnected because they did not read what they were sent.",
		}),
		passed:     requests.WithLabelValues("hub", "passed"),
		answered:   requests.WithLabelValues("agent", "answered"),
		failed:     requests.WithLabelValues("agent", "failed"),
		unaccepted: requests.WithLabelValues("agent", "unauthenticated"),
		forbidden:  requests.WithLabelValues("agent", "read_only"),
	}
	r.MustRegister(requests, m.clients, m.refused, m.overrun)
	return m
}
