package gateway

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the metrics of a Gateway. The label agent is empty until the principal has confirmed that the agent exists, so
// that callers cannot create series.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	open     *prometheus.GaugeVec

	mu       sync.RWMutex
	agents   map[string]struct{} // that have series of their own. Guarded by mu
	capacity int                 // of agents
}

// newMetrics registers the metrics. At most so many agents have series of their own.
func newMetrics(registerer prometheus.Registerer, agents int) *metrics {
	factory := promauto.With(registerer)
	return &metrics{
		agents: make(map[string]struct{}), capacity: agents,
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_kubeproxy_requests_total",
			Help: "Finished requests by agent (empty for those beyond --metrics-agents), verb and class of the response status (2xx, ..., or aborted if the response broke off).",
		}, []string{"agent", "verb", "code"}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "argocd_kubeproxy_request_duration_seconds",
			Help:    "Duration of requests other than watches, logs and upgrades.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb"}),
		open: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argocd_kubeproxy_open_requests",
			Help: "Open requests by kind: request, stream (watch or log), upgrade (exec, attach or port-forward).",
		}, []string{"kind"}),
	}
}

// addAgent adds an agent that exists, if there is room for its series.
func (m *metrics) addAgent(agent string) {
	if m.agentLabel(agent) != "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.agents) < m.capacity {
		m.agents[agent] = struct{}{}
	}
}

// removeAgent removes an agent that no longer exists, with its series.
func (m *metrics) removeAgent(agent string) {
	if m.agentLabel(agent) == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.agents, agent)
	m.requests.DeletePartialMatch(prometheus.Labels{"agent": agent})
}

// agentLabel returns the name of an agent that has series of its own, and otherwise nothing.
func (m *metrics) agentLabel(agent string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, ok := m.agents[agent]; ok {
		return agent
	}
	return ""
}

// codeClass returns the class of an HTTP status, such as 2xx.
func codeClass(code int) string { return strconv.Itoa(code/100) + "xx" }
