package kube_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
)

// kubeconfig writes one with two contexts, of which the first is the current one, and returns its path.
func kubeconfig(t *testing.T, first, second string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: first
clusters:
- {name: one, cluster: {server: %q}}
- {name: two, cluster: {server: %q}}
contexts:
- {name: first, context: {cluster: one, user: somebody}}
- {name: second, context: {cluster: two, user: somebody}}
users:
- {name: somebody, user: {token: secret}}
`, first, second)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestContext(t *testing.T) {
	path := kubeconfig(t, "https://one.test", "https://two.test")
	for name, want := range map[string]string{"": "https://one.test", "first": "https://one.test", "second": "https://two.test"} {
		config, err := kube.Config(kube.Options{Kubeconfig: path, Context: name})
		require.NoError(t, err)
		require.Equal(t, want, config.Host, "context %q", name)
		require.Equal(t, "secret", config.BearerToken)
	}
}

func TestContexts(t *testing.T) {
	all, current, err := kube.Contexts(kubeconfig(t, "https://one.test", "https://two.test"))
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second"}, all)
	require.Equal(t, "first", current)
	_, _, err = kube.Contexts("/no/such/file")
	require.ErrorContains(t, err, "/no/such/file")
}

// A client says who it is, and is not held up by limits of its own: more requests at a time than client-go would let
// through in seconds.
func TestClientUserAgentAndNoRateLimit(t *testing.T) {
	const many = 500
	agents := make(chan string, many)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { agents <- r.UserAgent() }))
	defer server.Close()
	config, err := kube.Config(kube.Options{Kubeconfig: kubeconfig(t, server.URL, server.URL), Program: "argocd-agent-agent"})
	require.NoError(t, err)
	require.Negative(t, config.QPS)
	require.Nil(t, config.RateLimiter)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	require.NoError(t, err)
	for range many {
		require.NoError(t, client.Get().AbsPath("/").Do(t.Context()).Error())
		require.Equal(t, "argocd-agent-agent/dev", <-agents)
	}
}

func TestMalformedKubeconfig(t *testing.T) {
	good := kubeconfig(t, "https://one.test", "https://two.test")
	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, []byte("{{{"), 0o600))
	for name, c := range map[string]struct {
		options kube.Options
		want    string
	}{
		"no such file":    {kube.Options{Kubeconfig: "/no/such/file"}, "/no/such/file"},
		"no YAML":         {kube.Options{Kubeconfig: bad}, "kubeconfig"},
		"no such context": {kube.Options{Kubeconfig: good, Context: "third"}, "third"},
	} {
		_, err := kube.Config(c.options)
		require.ErrorContains(t, err, c.want, name)
	}
}

// Outside of a pod and without a kubeconfig there is no cluster to talk to, and none is made up.
func TestNoKubeconfigIsNotLocalhost(t *testing.T) {
	t.Setenv("KUBECONFIG", "/no/such/file")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	config, err := kube.Config(kube.Options{})
	require.Error(t, err, "%v", config)
}

// What the Kubernetes libraries log goes where everything else goes.
func TestClientGoLogsThroughOurLogger(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	ctx, cluster, err := kube.Open(t.Context(), kube.Options{Kubeconfig: kubeconfig(t, "https://one.test", "https://two.test")}, logger)
	require.NoError(t, err)
	require.Equal(t, "https://one.test", cluster.Config.Host)
	klog.FromContext(ctx).Info("hello")
	require.Contains(t, log.String(), "msg=hello component=kubernetes")
	_, _, err = kube.Open(t.Context(), kube.Options{Kubeconfig: "/nowhere"}, logger)
	require.ErrorContains(t, err, "kubeconfig")
}
