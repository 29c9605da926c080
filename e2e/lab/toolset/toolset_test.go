package toolset_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

func TestSlowProgramsTakeThePlaceOfOthersWhereTheyAreAskedFor(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // where nothing is built
	repository, err := toolset.Repository()
	require.NoError(t, err)
	usual, err := toolset.Locate(repository)
	require.NoError(t, err)
	require.Equal(t, "tools", usual.Target())
	require.False(t, usual.Has(toolset.ArgoCD34))
	older, err := toolset.Locate(repository, toolset.ArgoCD34)
	require.NoError(t, err)
	require.Equal(t, "tools-slow", older.Target())
	require.True(t, older.Has(toolset.ArgoCD34))
	require.Contains(t, toolset.Slow(), toolset.ArgoCD34)

	require.NotEqual(t, usual.Program(toolset.ArgoCDServer), older.Program(toolset.ArgoCDServer))
	require.NotEqual(t, usual.File(toolset.ApplicationCRD), older.File(toolset.ApplicationCRD))
	require.Equal(t, usual.Program(toolset.APIServer), older.Program(toolset.APIServer))
	require.Equal(t, usual.Missing(), older.Missing(), "the names are the same")

	_, err = toolset.Locate(repository, "unheard-of")
	require.ErrorIs(t, err, toolset.ErrNoModule)
}
