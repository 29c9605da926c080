package token_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
)

// timeout is how long a test waits for what must happen.
const timeout = 2 * time.Minute

// follow starts a Source.
func follow(t *testing.T, path string) (*token.Source, *logtest.Log) {
	t.Helper()
	log := &logtest.Log{}
	source := token.NewSource(path, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return source, log
}

// after does something, and waits until the keys have changed.
func after(t *testing.T, source *token.Source, change func()) *token.Keys {
	t.Helper()
	changed := source.Changed()
	change()
	select {
	case <-changed:
	case <-time.After(timeout):
		require.FailNow(t, "the keys have not changed")
	}
	keys, err := source.Keys()
	require.NoError(t, err)
	return keys
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".tmp", text, 0o600))
	require.NoError(t, os.Rename(path+".tmp", path))
}

func thumbprint(t *testing.T, text []byte) string {
	t.Helper()
	return parse(t, text).Thumbprints()[0]
}

func TestKeyFolderReloadsOnRotation(t *testing.T) {
	above := t.TempDir()
	folder := filepath.Join(above, "not", "yet")
	source, log := follow(t, folder)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "mount the Secret argocd-agent-jwt") }, timeout, time.Millisecond)
	_, err := source.Verify("x")
	require.ErrorIs(t, err, token.ErrRefused)
	require.ErrorContains(t, err, "mount the Secret")

	first, second := private(t, pki.ECDSAP256), private(t, pki.ECDSAP256)
	keys := after(t, source, func() {
		require.NoError(t, os.MkdirAll(folder, 0o700))
		write(t, filepath.Join(folder, "jwt.key"), first)
	})
	issued, err := keys.Issue("a", time.Hour)
	require.NoError(t, err)

	write(t, filepath.Join(folder, "jwt-2025.key"), first)
	keys = after(t, source, func() { write(t, filepath.Join(folder, "jwt.key"), second) })
	require.ElementsMatch(t, []string{thumbprint(t, first), thumbprint(t, second)}, keys.Thumbprints())
	newer, err := keys.Issue("a", time.Hour)
	require.NoError(t, err)
	says, err := keys.Verify(newer)
	require.NoError(t, err)
	require.Equal(t, thumbprint(t, second), says.Key)
	_, err = source.Verify(issued)
	require.NoError(t, err)

	write(t, filepath.Join(folder, "README"), []byte("no key"))
	write(t, filepath.Join(folder, "broken.pub"), []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "broken.pub") }, timeout, time.Millisecond)
	_, err = source.Verify(issued)
	require.NoError(t, err, "the last good ones stay")
	require.NoError(t, os.Remove(filepath.Join(folder, "broken.pub")))

	keys = after(t, source, func() { require.NoError(t, os.Remove(filepath.Join(folder, "jwt-2025.key"))) })
	require.Equal(t, []string{thumbprint(t, second)}, keys.Thumbprints())
	_, err = source.Verify(issued)
	require.ErrorIs(t, err, token.ErrRefused)
}

// The kubelet updates a mounted Secret by swapping a link.
func TestMountedKeySecretIsReloaded(t *testing.T) {
	for name, path := range map[string]string{"folder": "", "file": "jwt.key"} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			swap := func(version string, key []byte) {
				require.NoError(t, os.Mkdir(filepath.Join(mount, version), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(mount, version, "jwt.key"), key, 0o600))
				require.NoError(t, os.Symlink(version, filepath.Join(mount, "..tmp")))
				require.NoError(t, os.Rename(filepath.Join(mount, "..tmp"), filepath.Join(mount, "..data")))
			}
			first, second := private(t, pki.ECDSAP256), private(t, pki.Ed25519)
			swap("..1", first)
			require.NoError(t, os.Symlink(filepath.Join("..data", "jwt.key"), filepath.Join(mount, "jwt.key")))
			source, _ := follow(t, filepath.Join(mount, path))
			require.Eventually(t, func() bool { _, err := source.Keys(); return err == nil }, timeout, time.Millisecond)
			keys := after(t, source, func() { swap("..2", second) })
			require.Equal(t, []string{thumbprint(t, second)}, keys.Thumbprints())
			require.True(t, keys.CanSign())
		})
	}
}

func TestKeyFileWithSeveralKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.pem")
	first, second := private(t, pki.ECDSAP256), private(t, pki.Ed25519)
	write(t, file, append(public(t, first), second...))
	source, _ := follow(t, file)
	require.Eventually(t, func() bool { _, err := source.Keys(); return err == nil }, timeout, time.Millisecond)
	keys, err := source.Keys()
	require.NoError(t, err)
	issued, err := keys.Issue("a", time.Hour)
	require.NoError(t, err)
	says, err := source.Verify(issued)
	require.NoError(t, err)
	require.Equal(t, thumbprint(t, second), says.Key)

	keys = after(t, source, func() { write(t, file, public(t, second)) })
	require.False(t, keys.CanSign())
}
