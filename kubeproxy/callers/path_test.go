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

func TestParseTarget(t *testing.T) {
	for target, want := range map[string]callers.Target{
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
		got, err := callers.ParseTarget(target)
		require.NoError(t, err, target)
		require.Equal(t, want, got, target)
	}
}

// A target is either refused, or means the agent that any other reader of it would take.
func FuzzParseTarget(f *testing.F) {
	for _, target := range []string{
		"/", "/api/v1/pods?watch=true", "/agents/a/api", "/agents/a/../b/api", "/agents/%61/x", "/agents%2fa/x", "//agents/a/x",
		"/agents/a%2f..%2fb/x", "/%61gents/a/x", "/agents/a//x", "/agents/a/%2f", "/agents", "/x/%2e%2e/agents/a", "/agents/a/%252e%252e/b", "*",
	} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		got, err := callers.ParseTarget(target)
		if err != nil {
			refusal := new(apihttp.Error)
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, http.StatusBadRequest, refusal.Code)
			require.Less(t, len(err.Error()), 4096)
			return
		}
		raw, _, _ := strings.Cut(target, "?")
		require.True(t, strings.HasPrefix(got.Path, "/"))
		require.True(t, strings.HasSuffix(raw, got.Path) || got.Path == "/")
		plain, err := url.PathUnescape(raw)
		require.NoError(t, err)
		cleaned := path.Clean(plain)
		if got.Agent == "" {
			require.Equal(t, raw, got.Path)
			require.False(t, strings.HasPrefix(cleaned+"/", "/agents/"), "a path that others take for one with the prefix")
			return
		}
		_, err = identity.ParseAgent(string(got.Agent))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(cleaned+"/", "/agents/"+string(got.Agent)+"/"), "others take it for another agent")
		require.True(t, strings.HasPrefix(raw, "/agents/"+string(got.Agent)))
		require.False(t, strings.HasPrefix(got.Path, "//"))
	})
}
