package policy_test

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

// arriving returns a request as an HTTP server reads it, nil if the server refuses it by itself.
func arriving(method, target string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: spoke\r\n\r\n")))
	if err != nil {
		return nil
	}
	return r
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/api/v1/namespaces/a/pods/p", "get |pods||a|p"},
		{"HEAD", "/api/v1/namespaces/a/pods/p", "get |pods||a|p"},
		{"GET", "/api/v1/namespaces/a/pods/p/log?follow=true&tailLines=10", "get |pods|log|a|p"},
		{"POST", "/api/v1/namespaces/a/pods/p/exec?command=ls&command=-l&stdin=true", "create |pods|exec|a|p"},
		{"POST", "/api/v1/namespaces/a/pods/p/portforward?ports=1&ports=2", "create |pods|portforward|a|p"},
		{"GET", "/api/v1/namespaces/a/pods", "list |pods||a|"},
		{"GET", "/api/v1/namespaces/a/pods?watch=true", "watch |pods||a|"},
		{"GET", "/api/v1/namespaces/a/pods?watch=1&resourceVersion=7&allowWatchBookmarks=true", "watch |pods||a|"},
		{"GET", "/api/v1/namespaces/a/pods?watch=false&limit=500", "list |pods||a|"},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "list |pods||a|p"},
		{"DELETE", "/api/v1/namespaces/a/pods", "deletecollection |pods||a|"},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch apps|deployments|scale|a|d"},
		{"PUT", "/apis/apps/v1/namespaces/a/deployments/d/status", "update apps|deployments|status|a|d"},
		{"GET", "/api/v1/namespaces/a", "get |namespaces||a|a"},
		{"PUT", "/api/v1/namespaces/a/finalize", "update |namespaces|finalize|a|a"},
		{"PATCH", "/api/v1/namespaces/a/status", "patch |namespaces|status|a|a"},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", "get rbac.authorization.k8s.io|clusterroles|||system:node"},
		{"GET", "/api/v1/namespaces/a/services/http:s:80/proxy/x/y?a=1&a=2", "get |services|proxy|a|http:s:80"},
		{"GET", "/api", "get /api"},
		{"GET", "/apis/apps/v1", "get /apis/apps/v1"},
		{"GET", "/openapi/v3/apis/apps/v1?hash=1", "get /openapi/v3/apis/apps/v1"},
		{"GET", "/", "get /"},
	} {
		q, err := policy.Parse(arriving(c.method, c.target))
		require.NoError(t, err, c.target)
		got := q.Verb + " " + strings.Join([]string{q.APIGroup, q.Resource, q.Subresource, q.Namespace, q.Name}, "|")
		if !q.IsResourceRequest {
			got = q.Verb + " " + q.Path
		}
		require.Equal(t, c.want, got, "%s %s", c.method, c.target)
	}
}

func TestParseRefusesAmbiguousRequests(t *testing.T) {
	for _, target := range []string{
		"/api/v1/namespaces/a/pods/../secrets/s", "/api/v1/./namespaces/a/pods/p", "/api/v1/namespaces/a/pods/..",
		"/api/v1//namespaces/a/pods/p", "//api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/pods/p/", "/api/",
		"/api/v1/namespaces/a/pods/p%2Fexec", "/api/v1/namespaces/a/pods/p%2fexec", "/api/v1/namespaces/a/pods/%2e%2e/s",
		"/api/v1/namespaces/a/pods/p%00", "/api/v1/namespaces/a/pods/p%0a", "/api/v1/namespaces/a/pods/p%20", "/api/v1/namespaces/a/pods/p%25",
		"/api/v1/namespaces/a/pods/p;x=y", "/api/v1/namespaces/a/pods/p%3Bx", `/api/v1/namespaces/a/pods\p`, "/api/v1/namespaces/a/pods/p%23", "/api/v1/namespaces/a/pods/p%3Fwatch",
		"/api/v1/namespaces/a/%70ods/p", "/api/v1/namespaces/a/pods/%C3%BC", "/api/v1/namespaces/a/pods/%ff",
		"/API/v1/namespaces/a/pods/p", "/Apis/apps/v1", "/api/V1/pods/p", "/api/v1/Namespaces/a/pods/p", "/api/v1/namespaces/A/pods/p",
		"/api/v1/namespaces/a/Pods/p", "/api/v1/namespaces/a/pods/p/Exec", "/apis/Apps/v1/namespaces/a/deployments/d",
		"/api/v1/namespaces/-/pods/p", "/apis/custom.metrics.k8s.io/v1beta1/namespaces/*/pods/p",
		"/api/v1/watch/namespaces/a/pods", "/apis/apps/v1/watch/deployments", "/api/v1/proxy/namespaces/a/pods/p", "/api/v1/watch",
		"/api/v1/namespaces/a/watch/p", "/api/v1/namespaces/a/proxy/p",
		"/apis/apps/v1/namespaces/a/status", "/apis/apps/v1/namespaces/a/finalize", "/apis/apps/v1/namespaces/a", "/apis/apps/v1/namespaces",
		"/api/v1/pods?watch", "/api/v1/pods?watch=", "/api/v1/pods?watch=t", "/api/v1/pods?watch=True", "/api/v1/pods?watch=yes",
		"/api/v1/pods?watch=false&watch=true", "/api/v1/namespaces/a/pods/p?watch=true", "/api/v1/pods?a=1;watch=true", "/api/v1/pods?watch=%zz",
		"/api/v1/pods?limit=many", "/api/v1/pods?timeoutSeconds=1s", "/api/v1/pods?fieldSelector=metadata.name", "/api/v1/pods?labelSelector=a=b=c",
		"/api/v1/pods?fieldSelector=metadata.name=a,metadata.name=b", "/api/v1/pods?fieldSelector=metadata.name=a&fieldSelector=metadata.name=b",
		"/api/v1/namespaces/a/pods/p/log?container=a&container=b", "/api/v1/namespaces/a/pods/p?dryRun=All&dryRun=All",
		"http://elsewhere/api/v1/pods", "*",
	} {
		r := arriving("GET", target)
		if r == nil {
			continue
		}
		q, err := policy.Parse(r)
		require.Error(t, err, "%s: %+v", target, q)
		require.True(t, fails(err, http.StatusBadRequest), "%s: %v", target, err)
	}
	for _, method := range []string{"OPTIONS", "CONNECT", "TRACE", "PROPFIND", "get"} {
		r := arriving("GET", "/api/v1/pods")
		r.Method = method
		_, err := policy.Parse(r)
		require.True(t, fails(err, http.StatusMethodNotAllowed), "%s: %v", method, err)
	}
}

func TestParseReadsHeaders(t *testing.T) {
	r := arriving("POST", "/api/v1/namespaces/a/pods")
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	q, err := policy.Parse(r)
	require.NoError(t, err)
	require.Equal(t, "application/json", q.MediaType)
	require.False(t, q.Impersonates)
	for _, name := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes"} {
		r := arriving("GET", "/api/v1/namespaces/a/pods")
		r.Header.Set(name, "x")
		q, err := policy.Parse(r)
		require.NoError(t, err)
		require.True(t, q.Impersonates, name)
	}
	r.Header.Set("Content-Type", "application/json;;;=")
	_, err = policy.Parse(r)
	require.True(t, fails(err, http.StatusBadRequest), "%v", err)
}

// FuzzParse holds that what Parse accepts reaches the API server as the same request: written out as the proxy writes it,
// read by an HTTP server, and parsed by the API server's parser.
func FuzzParse(f *testing.F) {
	for _, target := range []string{
		"/api/v1/namespaces/a/pods/p/exec?command=a&command=b", "/apis/apps/v1/namespaces/a/deployments/d/scale", "/api/v1/namespaces/a/finalize",
		"/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name=p", "/api/v1/watch/pods", "/apis/g/v/namespaces/n/status", "/healthz",
		"/api/v1/namespaces/a/services/s:80/proxy/../x", "/api/v1/namespaces/a/pods/%2e%2e", "/api/v1/pods?limit=1&watch=t", "/API/v1/x", "//", "/",
		"/api/v1/events?fieldSelector=involvedObject.uid=u,involvedObject.name!=n", "/api/v1/namespaces/a/pods/p;x", "http://a/api/v1/pods/p",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			f.Add(method, target)
		}
	}
	parser := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	f.Fuzz(func(t *testing.T, method, target string) {
		r := arriving(method, target)
		if r == nil {
			return
		}
		q, err := policy.Parse(r)
		if err != nil {
			return
		}
		sent := url.URL{Scheme: "https", Host: "api", Path: r.URL.Path, RawQuery: r.URL.RawQuery}
		there := arriving(r.Method, sent.RequestURI())
		require.NotNil(t, there, "%q", target)
		info, err := parser.NewRequestInfo(there)
		require.NoError(t, err)
		require.Equal(t, *info, q.RequestInfo, "%q", target)
		for part := range strings.SplitSeq(strings.TrimPrefix(info.Path, "/"), "/") {
			require.NotContains(t, []string{".", ".."}, part)
			require.False(t, part == "" && info.Path != "/", "%q", target)
		}
		if q.Verb == "list" || q.Verb == "watch" {
			require.Equal(t, q.Name, q.Fields["metadata.name"], "%q", target)
		}
	})
}
