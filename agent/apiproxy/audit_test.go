package apiproxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestAuditLogHasNoSecrets(t *testing.T) {
	s := newSpoke(t, true, func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct{ method, target, want string }{
		{"GET", pod, "level=DEBUG verb=get decision=allowed code=200 resource=pods namespace=good name=p application=guestbook"},
		{"GET", pod + "/log?container=c", "level=DEBUG verb=get subresource=log"},
		{"GET", "/api/v1/namespaces/good/secrets/s", "level=INFO verb=get decision=allowed resource=secrets namespace=good name=s"},
		{"GET", "/api/v1/secrets?watch=true", "level=INFO verb=watch resource=secrets"},
		{"DELETE", pod, "level=INFO verb=delete decision=allowed"},
		{"PATCH", "/apis/apps/v1/namespaces/good/deployments/d", "level=INFO verb=patch group=apps resource=deployments name=d"},
		{"GET", pod + "/exec?command=mysql&command=-psecret&container=secret", "level=INFO verb=get subresource=exec command_words=2"},
		{"GET", "/api/v1/namespaces/bad/pods/p", "level=INFO verb=get decision=denied code=403"},
		{"GET", "/api/v1/namespaces/unknown/pods/p", "level=INFO verb=get decision=failed code=503"},
		{"GET", "/version", "level=DEBUG path=/version"},
	} {
		s.ask(t, c.method, c.target, http.NoBody, "Argocd-Agent-Caller", "spiffe://hub/argocd-server "+strings.Repeat("x", 1000), "Authorization", "Bearer secret")
		line := s.log.last()
		for word := range strings.FieldsSeq(c.want) {
			require.Contains(t, line, word)
		}
		require.Contains(t, line, `caller="spiffe://hub/argocd-server xxx`)
		require.Contains(t, line, "duration=")
		require.NotContains(t, strings.ReplaceAll(line, "resource=secrets", ""), "secret")
		require.Less(t, len(line), 1200)
	}
	want := `
		# HELP argocd_agent_resource_proxy_requests_total Requests from the hub to this cluster's API server, by verb, outcome (allowed, denied, failed) and class of the status code.
		# TYPE argocd_agent_resource_proxy_requests_total counter
		argocd_agent_resource_proxy_requests_total{code="2xx",outcome="allowed",verb="delete"} 1
		argocd_agent_resource_proxy_requests_total{code="2xx",outcome="allowed",verb="get"} 5
		argocd_agent_resource_proxy_requests_total{code="2xx",outcome="allowed",verb="patch"} 1
		argocd_agent_resource_proxy_requests_total{code="2xx",outcome="allowed",verb="watch"} 1
		argocd_agent_resource_proxy_requests_total{code="4xx",outcome="denied",verb="get"} 1
		argocd_agent_resource_proxy_requests_total{code="5xx",outcome="failed",verb="get"} 1
	`
	require.NoError(t, testutil.GatherAndCompare(s.registry, strings.NewReader(want)))
	problems, err := testutil.GatherAndLint(s.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}
