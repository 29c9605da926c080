// Package clientgo exports what client-go measures: the requests to the API server, by code, method and time, their retries, and
// its work queues.
package clientgo

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // has client-go measure its requests
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // and its work queues
)

// Gatherer returns client-go's metrics. They are in a registry of Kubernetes' own, which all clients of a program share and which
// has other metrics too that the program has already, such as the Go runtime's.
func Gatherer() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := legacyregistry.DefaultGatherer.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
			return !strings.HasPrefix(f.GetName(), "rest_client_") && !strings.HasPrefix(f.GetName(), "workqueue_")
		}), err
	})
}
