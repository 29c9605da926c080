package front

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	clients          prometheus.Gauge
	refused, overrun prometheus.Counter
	strangers        prometheus.Counter
	unauthenticated  prometheus.Counter

	passed, answered, failed, denied, readOnly prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_redisproxy_requests_total",
		Help: "Commands of clients, by kind (for the hub's Redis, or about agent-owned keys) and result.",
	}, []string{"kind", "result"})
	m := metrics{
		clients: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_clients", Help: "Connected clients.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_clients_refused_total", Help: "Clients that were refused because too many were connected.",
		}),
		overrun: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_clients_overrun_total", Help: "Clients that were disconnected because they did not read what agents announced.",
		}),
		unauthenticated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_clients_unauthenticated_total",
			Help: "Clients that were disconnected because they did not authenticate in time, or before others needed their place.",
		}),
		strangers: requests.WithLabelValues("hub", "unauthenticated"),
		passed:    requests.WithLabelValues("hub", "passed"),
		answered:  requests.WithLabelValues("agent", "answered"),
		failed:    requests.WithLabelValues("agent", "failed"),
		denied:    requests.WithLabelValues("agent", "denied"),
		readOnly:  requests.WithLabelValues("agent", "read_only"),
	}
	r.MustRegister(requests, m.clients, m.refused, m.overrun, m.unauthenticated)
	return m
}
