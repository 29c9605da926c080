package callers_test

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPathsAreTakenApart(t *testing.T) {
	for target, want := range map[string]callers.Way{
		"/":                               {Path: "/"},
		"/api/v1/pods?watch=true":         {Path: "/api/v1/pods"},
		"/api/v1/a//b/%2F;c":              {Path: "/api/v1/a//b/%2F;c"},
		"/agentsandmore/a":                {Path: "/agentsandmore/a"},
		"/Agents/a":                       {Path: "/Agents/a"},
		"/agents/a":                       {Agent: "a", Path: "/"},
		"/agents/a?x=/agents/b":           {Agent: "a", Path: "/"},
		"/agents/a/":                      {Agent: "a", Path: "/"},
		"/agents/cluster-1/api/v1/%2e%20": {Agent: "cluster-1", Path: "/api/v1/%2e%20"},
		"/agents/a/agents/b/..c/d..":      {Agent: "a", Path: "/agents/b/..c/d.."},
	} {
		way, err := callers.ParseTarget(target)
		require.NoError(t, err, target)
		require.Equal(t, want, way, target)
	}
}

// Whatever the target, it is either refused as a bad request, or leads where a plain reading of it leads.
func FuzzParseTarget(f *testing.F) {
	for _, target := range []string{
		"/", "/api/v1/pods?watch=true", "/agents/a/api", "/agents/a/../b/api", "/agents/%61/x", "/agents%2fa/x", "//agents/a/x",
		"/agents/a%2f..%2fb/x", "/%61gents/a/x", "/agents/a//x", "/agents/a/%2f", "/agents", "/x/%2e%2e/agents/a", "/agents/a/%252e%252e/b", "*",
	} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		way, err := callers.ParseTarget(target)
		if err != nil {
			refusal := new(apihttp.Error)
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, http.StatusBadRequest, refusal.Code)
			require.Less(t, len(err.Error()), 4096)
			return
		}
		raw, _, _ := strings.Cut(target, "?")
		require.True(t, strings.HasPrefix(way.Path, "/"))
		require.True(t, strings.HasSuffix(raw, way.Path) || way.Path == "/")
		plain, err := url.PathUnescape(raw)
		require.NoError(t, err)
		cleaned := path.Clean(plain)
		if way.Agent == "" {
			require.Equal(t, raw, way.Path)
			require.False(t, strings.HasPrefix(cleaned+"/", "/agents/"), "a path that others take for one with the prefix")
			return
		}
		_, err = identity.ParseAgent(string(way.Agent))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(cleaned+"/", "/agents/"+string(way.Agent)+"/"), "others take it for another agent")
		require.True(t, strings.HasPrefix(raw, "/agents/"+string(way.Agent)))
		require.False(t, strings.HasPrefix(way.Path, "//"))
	})
}
