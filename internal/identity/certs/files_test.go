package certs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// mount lays out a directory as the kubelet does for a mounted Secret: every key is a link through the link ..data.
type mount struct {
	directory string
	versions  int
	current   string
}

func newMount(t *testing.T, pair pki.Pair) *mount {
	t.Helper()
	m := &mount{directory: t.TempDir()}
	m.update(t, pair)
	for _, name := range []string{"tls.crt", "tls.key"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(m.directory, name)))
	}
	return m
}

// update swaps ..data to a new directory and removes the old one, as the kubelet does.
func (m *mount) update(t *testing.T, pair pki.Pair) {
	t.Helper()
	m.versions++
	next := filepath.Join(m.directory, "..version-"+string(rune('a'+m.versions)))
	require.NoError(t, os.Mkdir(next, 0o700))
	writePair(t, next, pair)
	require.NoError(t, os.Symlink(filepath.Base(next), filepath.Join(m.directory, "..data_tmp")))
	require.NoError(t, os.Rename(filepath.Join(m.directory, "..data_tmp"), filepath.Join(m.directory, "..data")))
	if m.current != "" {
		require.NoError(t, os.RemoveAll(m.current))
	}
	m.current = next
}

func (m *mount) origin() certs.Origin {
	return certs.PairFiles(filepath.Join(m.directory, "tls.crt"), filepath.Join(m.directory, "tls.key"))
}

func TestMountedSecretIsReloaded(t *testing.T) {
	ca := newCA(t, "CA")
	pair := clientPair(t, ca, "agent-a", pki.Validity{})
	mounted := newMount(t, pair)
	source := run(t, certs.Options{Pair: mounted.origin()}).ready(t)
	require.Equal(t, serialOf(t, pair), source.serial(t))

	for range 4 {
		pair = clientPair(t, ca, "agent-a", pki.Validity{})
		source.after(t, func() { mounted.update(t, pair) })
		require.Equal(t, serialOf(t, pair), source.serial(t))
	}
	require.Equal(t, 4.0, source.value(t, reloads, "test", "success"))
	require.Equal(t, 0.0, source.value(t, reloads, "test", "failure"), "a swap is never seen by halves")
}

func TestRenamedAndOverwrittenFilesAreReloaded(t *testing.T) {
	ca := newCA(t, "CA")
	directory := t.TempDir()
	certificate, key := writePair(t, directory, clientPair(t, ca, "agent-a", pki.Validity{}))
	source := run(t, certs.Options{Pair: certs.PairFiles(certificate, key)}).ready(t)

	renamed := clientPair(t, ca, "agent-a", pki.Validity{})
	source.after(t, func() { writePair(t, directory, renamed) })
	require.Equal(t, serialOf(t, renamed), source.serial(t))

	inPlace := clientPair(t, ca, "agent-a", pki.Validity{})
	source.after(t, func() {
		require.NoError(t, os.WriteFile(key, inPlace.Key, 0o600))
		require.NoError(t, os.WriteFile(certificate, inPlace.Certificate, 0o600))
	})
	require.Equal(t, serialOf(t, inPlace), source.serial(t))
}

func TestMissingFilesAreLoadedWhenTheyAppear(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "not", "yet", "there")
	source := run(t, certs.Options{
		Pair:     certs.PairFiles(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")),
		PairHint: "mount the Secret",
	})
	line := source.log.await(t, "TLS certificates missing")
	require.Contains(t, line, filepath.Join(directory, "tls.crt"))
	require.Contains(t, line, filepath.Join(directory, "tls.key"))
	require.Contains(t, line, "mount the Secret")

	require.NoError(t, os.MkdirAll(directory, 0o700))
	pair := clientPair(t, newCA(t, "CA"), "agent-a", pki.Validity{})
	writePair(t, directory, pair)
	source.ready(t)
	require.Equal(t, serialOf(t, pair), source.serial(t))
}

func TestChangedSymbolicLinkReloadsFiles(t *testing.T) {
	ca := newCA(t, "CA")
	top := t.TempDir()
	generation := func(name string) pki.Pair {
		pair := clientPair(t, ca, "agent-a", pki.Validity{})
		require.NoError(t, os.MkdirAll(filepath.Join(top, name, "tls"), 0o700))
		writePair(t, filepath.Join(top, name, "tls"), pair)
		return pair
	}
	first, second := generation("first"), generation("second")
	current := filepath.Join(top, "current")
	require.NoError(t, os.Symlink("first", current))
	source := run(t, certs.Options{Pair: certs.PairFiles(filepath.Join(current, "tls", "tls.crt"), filepath.Join(current, "tls", "tls.key"))}).ready(t)
	require.Equal(t, serialOf(t, first), source.serial(t))

	source.after(t, func() {
		require.NoError(t, os.Symlink("second", current+".new"))
		require.NoError(t, os.Rename(current+".new", current))
	})
	require.Equal(t, serialOf(t, second), source.serial(t))

	third := clientPair(t, ca, "agent-a", pki.Validity{})
	source.after(t, func() { writePair(t, filepath.Join(top, "second", "tls"), third) })
	require.Equal(t, serialOf(t, third), source.serial(t))
}

func TestReplacedDirectoryReloadsFiles(t *testing.T) {
	ca := newCA(t, "CA")
	top := t.TempDir()
	directory := filepath.Join(top, "tls")
	require.NoError(t, os.Mkdir(directory, 0o700))
	certificate, key := writePair(t, directory, clientPair(t, ca, "agent-a", pki.Validity{}))
	source := run(t, certs.Options{Pair: certs.PairFiles(certificate, key)}).ready(t)

	next := clientPair(t, ca, "agent-a", pki.Validity{})
	require.NoError(t, os.Mkdir(directory+".new", 0o700))
	writePair(t, directory+".new", next)
	source.after(t, func() {
		require.NoError(t, os.Rename(directory, directory+".old"))
		require.NoError(t, os.Rename(directory+".new", directory))
	})
	require.Equal(t, serialOf(t, next), source.serial(t))

	last := clientPair(t, ca, "agent-a", pki.Validity{})
	source.after(t, func() { writePair(t, directory, last) })
	require.Equal(t, serialOf(t, last), source.serial(t))
}

func TestDeletedFilesKeepLastGoodCertificate(t *testing.T) {
	directory := t.TempDir()
	pair := clientPair(t, newCA(t, "CA"), "agent-a", pki.Validity{})
	certificate, key := writePair(t, directory, pair)
	source := run(t, certs.Options{Pair: certs.PairFiles(certificate, key)}).ready(t)

	require.NoError(t, os.Remove(key))
	require.Contains(t, source.log.await(t, "keeping the last good ones"), key)
	require.Equal(t, serialOf(t, pair), source.serial(t))
	write(t, key, pair.Key)
}

func TestCAFileWithCertificateFromAnotherOrigin(t *testing.T) {
	ca := newCA(t, "CA")
	path := filepath.Join(t.TempDir(), "ca.crt")
	write(t, path, ca.PEM().Certificate)
	source := run(t, certs.Options{
		Pair:  certs.Fixed("generated", pairBlocks(clientPair(t, ca, "agent-a", pki.Validity{}))),
		Roots: certs.RootsFile(path),
	}).ready(t)
	source.after(t, func() {
		write(t, path, append(ca.PEM().Certificate, newCA(t, "next").PEM().Certificate...))
	})
	material, err := source.Current()
	require.NoError(t, err)
	require.Len(t, material.CAs, 2)
	require.NotNil(t, material.Certificate)
}
