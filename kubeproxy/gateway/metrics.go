package gateway

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the figures of a Gateway. The label agent is empty until the principal has said that there is one of that
// name, so that nobody can make up series.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	open     *prometheus.GaugeVec

	mu     sync.RWMutex
	agents map[string]struct{} // those that have been dialled. Guarded by mu
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	return &metrics{
		agents: make(map[string]struct{}),
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_kubeproxy_requests_total",
			Help: "Requests that have ended, by agent, verb and class of the answer: 2xx and so on, aborted when it broke off.",
		}, []string{"agent", "verb", "code"}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "argocd_kubeproxy_request_duration_seconds",
			Help:    "How long requests took that are no watches, logs or upgrades.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb"}),
		open: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argocd_kubeproxy_open_requests",
			Help: "Requests that are open: request; stream, a watch or log; upgrade, an exec, attach or port-forward.",
		}, []string{"kind"}),
	}
}

// met notes that there is an agent of that name.
func (m *metrics) met(agent string) {
	if m.label(agent) != "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agents[agent] = struct{}{}
}

// forget drops what is kept of an agent that is no more.
func (m *metrics) forget(agent string) {
	if m.label(agent) == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.agents, agent)
	m.requests.DeletePartialMatch(prometheus.Labels{"agent": agent})
}

// label returns the agent's name if there is one.
func (m *metrics) label(agent string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, ok := m.agents[agent]; ok {
		return agent
	}
	return ""
}

// class is the class of an HTTP status.
func class(code int) string { return strconv.Itoa(code/100) + "xx" }
