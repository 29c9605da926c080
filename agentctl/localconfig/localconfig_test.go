package localconfig_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/localconfig"
)

// The file is as argocd-agent's documents show it.
const documented = `contexts:
    principals:
        hub:
            kube-context: hub-context
            namespace: argocd
    agents:
        spoke-a:
            kube-context: spokea-context
            namespace: argocd
default-principal: hub
`

func TestFileOfArgoCDAgentIsReadAndWritten(t *testing.T) {
	t.Parallel()
	path := localconfig.DefaultPath(t.TempDir())
	none, err := localconfig.Load(path)
	require.NoError(t, err)
	require.Empty(t, none.Contexts.Agents)
	require.NoError(t, none.Save(path))
	require.NoError(t, os.WriteFile(path, []byte(documented), 0o600))
	read, err := localconfig.Load(path)
	require.NoError(t, err)
	hub, err := read.Principal("hub")
	require.NoError(t, err)
	require.Equal(t, localconfig.Endpoint{Context: "hub-context", Namespace: "argocd"}, hub)
	_, err = read.Agent("spoke-c")
	require.ErrorContains(t, err, `there is no agent "spoke-c" in the config file: use one of spoke-a`)
	require.NoError(t, read.Save(path))
	again, err := localconfig.Load(path)
	require.NoError(t, err)
	require.Equal(t, read, again)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path}, left)
}

func TestFileThatCannotBeRightIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"contexts: []": "cannot unmarshal",
		"context: {}":  "unknown field",
		"contexts: {principals: {hub: {kube-context: a, namespace: B}}}": `principal "hub": namespace "B"`,
		"contexts: {agents: {a: {namespace: b}}}":                        `agent "a": kube-context`,
		"contexts: {agents: {a b: {kube-context: c, namespace: d}}}":     "want a name without spaces",
		"default-principal: hub":                                         `there is no principal "hub"`,
	} {
		path := filepath.Join(t.TempDir(), "ctl.conf")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := localconfig.Load(path)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, path)
	}
}
