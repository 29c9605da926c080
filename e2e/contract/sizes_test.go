package contract_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
)

// heapOf returns how much memory a text takes when it is decoded.
func heapOf(t *testing.T, text string, into any) int64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	err := json.NewDecoder(strings.NewReader(text)).Decode(into)
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.NoError(t, err, "%.200s", text)
	runtime.KeepAlive(into)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// Whatever a lying spoke has in its Redis, or answers, takes no more memory in argocd-server than was counted: redisproxy and kubeproxy
// refuse it by that.
func TestWhatArgoCDDecodesTakesNoMoreThanCounted(t *testing.T) {
	const n = 20_000
	tree := func() any { return new(v1alpha1.ApplicationTree) }
	events := func() any { return new(corev1.EventList) }
	for _, c := range []struct {
		before, each, after string
		into                func() any
		element             int64
	}{
		{`{"nodes":[`, `null`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"orphanedNodes":[`, `{}`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[`, `{"health":{}}`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[{"info":[`, `{}`, `]}]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[{"parentRefs":[`, `null`, `]}]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[{"images":[`, `"a"`, `]}]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[`, `{"images":[""]}`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[`, `{"info":[{}],"parentRefs":[{}]}`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[`, `{"networkingInfo":{"labels":{"":""},"targetLabels":{"":""}}}`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[`, `{"networkingInfo":{"targetRefs":[{}],"ingress":[{}]}}`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"nodes":[{"networkingInfo":{"ingress":[`, `{"ipMode":"","ports":[{"error":""}]}`, `]}}]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"hosts":[`, `null`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`{"hosts":[`, `{"labels":{"":""},"resourcesInfo":[{}]}`, `]}`, tree, jsonsize.ElementOfArgoCD},
		{`[`, `{}`, `]`, func() any { return new([]*v1alpha1.ResourceDiff) }, jsonsize.ElementOfArgoCD},
		{`{"items":[`, `null`, `]}`, events, jsonsize.ElementOfKubernetes},
		{`{"items":[`, `{"series":{},"related":{}}`, `]}`, events, jsonsize.ElementOfKubernetes},
		{`{"items":[`, `{"metadata":{"managedFields":[{"fieldsV1":{}}],"labels":{"":""}}}`, `]}`, events, jsonsize.ElementOfKubernetes},
		{`{"spec":{"containers":[`, `null`, `]}}`, func() any { return new(corev1.Pod) }, jsonsize.ElementOfKubernetes},
		{`{"kind":"List","items":[`, `{"kind":"a"}`, `]}`, func() any { return new(unstructured.UnstructuredList) }, jsonsize.ElementOfKubernetes},
	} {
		text := c.before + strings.Repeat(c.each+",", n-1) + c.each + c.after
		var counter jsonsize.Counter
		_, err := counter.Write([]byte(text))
		require.NoError(t, err)
		require.LessOrEqual(t, heapOf(t, text, c.into()), counter.Memory(c.element)+64<<10, c.before+c.each)
	}
}
