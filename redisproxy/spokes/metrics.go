package spokes

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	fresh, stale, miss prometheus.Counter
	latency            prometheus.Histogram
	failures           prometheus.Counter
	streams            prometheus.Gauge
	untracked          prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	hits := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_redisproxy_cache_hits_total",
		Help: "Cache hits for agent-owned keys: fresh values, and stale ones served because the agent could not be reached.",
	}, []string{"state"})
	m := metrics{
		fresh: hits.WithLabelValues("fresh"), stale: hits.WithLabelValues("stale"),
		miss: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_cache_misses_total", Help: "Cache misses for agent-owned keys.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "argocd_redisproxy_agent_request_seconds", Help: "Time to read a key from an agent's Redis.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_agent_request_failures_total", Help: "Failed reads from agents' Redis.",
		}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_invalidation_streams", Help: "Open invalidation streams from agents' Redis.",
		}),
		untracked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_invalidation_streams_untracked_total",
			Help: "Invalidation streams from a Redis without client tracking, whose values are never served from the cache as fresh.",
		}),
	}
	r.MustRegister(hits, m.miss, m.latency, m.failures, m.streams, m.untracked)
	return m
}

// watch exports the size of the cache.
func (metrics) watch(r prometheus.Registerer, s *Spokes) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_cache_bytes", Help: "Bytes of agents' values in the cache.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.cache.Bytes())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_cache_entries", Help: "Agents' values in the cache.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.cache.Len())
		}),
	)
}
