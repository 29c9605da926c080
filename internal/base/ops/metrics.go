package ops

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const metricsPath = "/metrics"

// NewRegistry returns a registry that says which build runs and how the process fares. The caller registers the rest.
func NewRegistry(version, revision string) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "argocd_agent_build_info",
		Help:        "Always 1; its labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version, "git_revision": revision},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// metricsMux shows what the registry and the libraries' hold, and the views. A collector that fails costs its own metrics, not
// those of the others.
func metricsMux(registry *prometheus.Registry, libraries []prometheus.Gatherer, views map[string]http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for path, view := range views {
		mux.Handle(path, view)
	}
	mux.Handle("GET "+metricsPath, promhttp.HandlerFor(append(prometheus.Gatherers{registry}, libraries...), promhttp.HandlerOpts{
		Registry:      registry,
		ErrorHandling: promhttp.ContinueOnError,
	}))
	return mux
}
