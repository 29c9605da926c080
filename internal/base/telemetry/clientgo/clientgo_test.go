package clientgo_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/telemetry/clientgo"
)

func TestRequestsAndQueuesAreMeasured(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	_, err = client.Discovery().ServerVersion()
	require.Error(t, err)
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "chores"})
	queue.Add("dishes")
	queue.ShutDown()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector()) // which Kubernetes' own registry has too
	families, err := prometheus.Gatherers{registry, clientgo.Gatherer()}.Gather()
	require.NoError(t, err)
	found := make(map[string]string)
	for _, f := range families {
		found[f.GetName()] = strings.Join(strings.Fields(f.String()), " ")
	}
	require.Contains(t, found["rest_client_requests_total"], `value:"404"`)
	require.Contains(t, found["rest_client_request_duration_seconds"], `value:"GET"`)
	require.Contains(t, found["workqueue_adds_total"], `value:"chores"`)
	require.Contains(t, found, "go_goroutines")
}
