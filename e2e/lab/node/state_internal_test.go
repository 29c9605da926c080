package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever can write there has root unmount and remove what they like.
func TestStateIsOfThisUserAlone(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "state")
	require.NoError(t, ownFolder(folder))
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, ownFolder(folder), "the next lab has the same")

	const refusal = "alone may enter"
	require.NoError(t, os.Chmod(folder, 0o710))
	require.ErrorContains(t, ownFolder(folder), refusal)
	require.NoError(t, os.Chmod(folder, 0o700))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(folder, link))
	require.ErrorContains(t, ownFolder(link), refusal)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, ownFolder(file), refusal)
	require.ErrorContains(t, ownFolder(filepath.Join(file, "state")), "not a directory")

	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder to somebody else")
	}
	require.NoError(t, os.Chown(folder, 65534, 65534))
	require.ErrorContains(t, ownFolder(folder), refusal)
}
