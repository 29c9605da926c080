package spokes

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	fresh, stale, miss prometheus.Counter
	latency            prometheus.Histogram
	failures           prometheus.Counter
	feeds              prometheus.Gauge
	untracked          prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	hits := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_redisproxy_cache_hits_total",
		Help: "Answers from the cache: fresh ones, and stale ones because the agent could not be asked.",
	}, []string{"state"})
	m := metrics{
		fresh: hits.WithLabelValues("fresh"), stale: hits.WithLabelValues("stale"),
		miss: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_cache_misses_total", Help: "Questions for which there was nothing fresh in the cache.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "argocd_redisproxy_agent_request_seconds", Help: "How long agents took to answer.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_agent_request_failures_total", Help: "Questions that an agent did not answer.",
		}),
		feeds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_feeds", Help: "Agents whose changes are followed.",
		}),
		untracked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_redisproxy_feeds_untracked_total",
			Help: "Feeds of agents whose Redis cannot tell of changed keys, so that nothing of them can be served as fresh.",
		}),
	}
	r.MustRegister(hits, m.miss, m.latency, m.failures, m.feeds, m.untracked)
	return m
}

// watch shows what the cache holds.
func (metrics) watch(r prometheus.Registerer, s *Spokes) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_cache_bytes", Help: "Bytes of agents' values that are kept.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.cache.Bytes())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "argocd_redisproxy_cache_entries", Help: "Agents' values that are kept.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.cache.Len())
		}),
	)
}
