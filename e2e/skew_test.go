package e2e_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// previousRelease is the tag that the checkout has to get along with, or a commit while there is none.
const previousRelease = "fe53a32e4d766ce19cb02fce4a9766e9b5dd77c4"

// A hub and its spokes are not upgraded at once: a principal serves agents of the release before, and an agent works with a principal of
// the release before, as docs/upgrade.md promises.
func TestSkewOfOneRelease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds the previous release")
	}
	previous := buildsOf(t, previousRelease)
	const ours = ""
	for _, c := range []struct{ name, hub, proxy, spoke string }{
		{"the hub is newer", ours, ours, previous},
		{"the spoke is newer", previous, previous, ours},
		{"the principal alone is newer", ours, previous, previous},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			principal := newPrincipal(t, lab.PrincipalOptions{Programs: c.hub})
			kubeproxy := newKubeproxy(t, lab.ProxyOptions{Principal: principal, Programs: c.proxy})
			redisproxy := newRedisproxy(t, lab.ProxyOptions{Principal: principal, Programs: c.proxy})
			s := newSite(t, "skewed", lab.AgentOptions{Principal: principal, Programs: c.spoke}).connected(t)

			app := s.newTwin("skewed").create(t)
			app.arrives(t)
			app.hub.edit(t, label("team", "blue"))
			app.spoke.becomes(t, labelled("team", "blue"))
			app.spoke.edit(t, func(object *unstructured.Unstructured) { set(object, "Healthy", "status", "health", "status") })
			app.hub.becomes(t, has("Healthy", "status", "health", "status"))
			served(t, map[string]*user{"kubeproxy": s.looks(t, kubeproxy), "redisproxy": app.reads(t, redisproxy)})
			s.mayBeWatched(t)
			sees, end := s.watches(t, kubeproxy)
			sees(app.declared.Name)
			end()
			app.hub.delete(t)
			app.spoke.vanishes(t)
		})
	}
}

// buildsOf builds the programs of a revision, and returns the folder they are in.
func buildsOf(t *testing.T, revision string) string {
	t.Helper()
	command := func(dir, name string, args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		var problem bytes.Buffer
		cmd.Stderr = &problem
		output, err := cmd.Output()
		require.NoError(t, err, "%s", problem.Bytes())
		return output
	}
	source, programs := t.TempDir(), t.TempDir()
	extract(t, command("..", "git", "archive", "--format=tar", revision), source)
	command(source, "go", "build", "-o", programs, "./principal", "./agent", "./kubeproxy", "./redisproxy")
	return programs
}

// extract writes the files of an archive into a folder, which is the root of all their paths.
func extract(t *testing.T, archive []byte, folder string) {
	t.Helper()
	root, err := os.OpenRoot(folder)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	for content := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := content.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		require.NoError(t, root.MkdirAll(filepath.Dir(h.Name), 0o755))
		text, err := io.ReadAll(content)
		require.NoError(t, err)
		require.NoError(t, root.WriteFile(h.Name, text, 0o644))
	}
}
