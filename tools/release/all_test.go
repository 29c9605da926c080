package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// product returns the folder of a small product that is ready to be released as v1.2.3, with the files changed that are given.
func productWith(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS(filepath.Join("testdata", "product"))))
	all := map[string]string{
		"LICENSE":                        "Do what you like.\n",
		"CHANGELOG.md":                   "# Changelog\n\n## [1.2.3] - 2026-11-01\n\n- It says hello.\n\n## [1.2.2] - 2026-10-01\n\n- It said nothing.\n",
		"README.md":                      "Run ghcr.io/argocd-agent-mesh/hello:v1.2.3.\n",
		"docs/install.md":                "    helm install hello oci://ghcr.io/argocd-agent-mesh/charts/hello --version 1.2.3 -n hello\n",
		"deploy/sidecar/hello.yaml":      "image: ghcr.io/argocd-agent-mesh/hello:v1.2.3\nother: ghcr.io/elsewhere/hello:v1.2.2\n",
		"charts/hello/Chart.yaml":        "name: hello\nversion: 1.2.3\nappVersion: v1.2.3\n",
		"charts/hello/values.yaml":       "{}\n",
		"charts/hello/templates/a.yaml":  "a: b\n",
		"charts/hello/ci/ha-values.yaml": "{}\n",
	}
	maps.Copy(all, files)
	for name, text := range all {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return root
}

func releaseOf(t *testing.T, root string) release {
	t.Helper()
	return release{
		root: root, out: t.TempDir(), version: "v1.2.3", revision: "abc", created: time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC),
		platforms: []platform{{"linux", "amd64"}}, programs: []product{{"hello", "say-hello", "It says hello", true}},
	}
}

func TestReleaseHasAllThatIsPublished(t *testing.T) {
	t.Parallel()
	r := releaseOf(t, productWith(t, nil))
	require.NoError(t, r.all(t.Context()))
	folder := filepath.Join(r.out, "v1.2.3")
	require.Equal(t, "- It says hello.\n", string(read(t, folder, "RELEASE_NOTES.md")))

	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = folder
	output, err := check.CombinedOutput()
	require.NoError(t, err, "%s", output)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Equal(t, len(entries)-1, bytes.Count(output, []byte(": OK")), "all files but the list itself are in it")

	require.Equal(t, []string{"hello/Chart.yaml", "hello/templates/a.yaml", "hello/values.yaml"}, namesIn(t, read(t, folder, "hello-1.2.3.tgz")))
	for _, name := range []string{"argocd-agent-mesh_v1.2.3_linux_amd64", "say-hello_v1.2.3_linux_arm64", "say-hello_v1.2.3_darwin_arm64"} {
		require.Equal(t, []string{name + "/CHANGELOG.md", name + "/LICENSE", name + "/say-hello"}, namesIn(t, read(t, folder, name+".tar.gz")))
	}
	windows, err := zip.OpenReader(filepath.Join(folder, "say-hello_v1.2.3_windows_amd64.zip"))
	require.NoError(t, err)
	defer func() { require.NoError(t, windows.Close()) }()
	require.Equal(t, "say-hello_v1.2.3_windows_amd64/say-hello.exe", windows.File[2].Name)
	require.FileExists(t, filepath.Join(folder, "say-hello_v1.2.3_image.tar"))
	require.FileExists(t, filepath.Join(folder, "say-hello_linux_amd64.spdx.json"))

	again := r
	again.out = t.TempDir()
	require.NoError(t, again.all(t.Context()))
	require.Equal(t, string(read(t, folder, "SHA256SUMS")), string(read(t, filepath.Join(again.out, "v1.2.3"), "SHA256SUMS")), "who releases again has the same, to the byte")
}

func namesIn(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	for content := tar.NewReader(z); ; {
		h, err := content.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		names = append(names, h.Name)
	}
}

// What is not ready is not released, and said before anything is built.
func TestReleaseThatIsNotReady(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version string
		files   map[string]string
		want    string
	}{
		"no version":             {"main", nil, `version "main": want a semantic version such as v0.1.0`},
		"nothing in the changes": {"v1.3.0", nil, `CHANGELOG.md says nothing of v1.3.0: write a section "## [1.3.0] - DATE"`},
		"an older chart": {
			"v1.2.3", map[string]string{"charts/hello/Chart.yaml": "name: hello\nversion: 1.2.2\nappVersion: v1.2.3\n"},
			"version 1.2.2 and appVersion v1.2.3: want 1.2.3 and v1.2.3, which are released",
		},
		"images of older versions": {
			"v1.2.3", map[string]string{
				"README.md":                 "Hello.\nRun `ghcr.io/argocd-agent-mesh/hello:v1.2.2`.\n",
				"deploy/sidecar/hello.yaml": "a: b\nimage: ghcr.io/argocd-agent-mesh/hello:1.2.3\n",
			},
			"v1.2.3 is released, and other versions are named:\nREADME.md:2: v1.2.2: want v1.2.3\n" +
				"deploy/sidecar/hello.yaml:2: 1.2.3: want v1.2.3",
		},
		"a page with an older chart": {
			"v1.2.3", map[string]string{
				"docs/install.md": "Get oci://ghcr.io/argocd-agent-mesh/charts/hello\n\n" +
					"    helm upgrade hello oci://ghcr.io/argocd-agent-mesh/charts/hello -n hello \\\n      --version 1.2.2 --wait\n",
			},
			"docs/install.md:4: 1.2.2: want 1.2.3",
		},
		"a chart that is none": {"v1.2.3", map[string]string{"charts/hello/Chart.yaml": "- no"}, "Chart.yaml: yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := releaseOf(t, productWith(t, c.files))
			r.version = c.version
			require.ErrorContains(t, r.all(t.Context()), c.want)
			require.NoDirExists(t, filepath.Join(r.out, c.version))
		})
	}
	require.ErrorContains(t, run(t.Context(), nil), "images or all")
	require.ErrorContains(t, run(t.Context(), []string{"nothing"}), `"nothing" cannot be made`)
}

func TestReleaseWithoutCharts(t *testing.T) {
	t.Parallel()
	r := releaseOf(t, productWith(t, nil))
	require.NoError(t, os.RemoveAll(filepath.Join(r.root, "charts")))
	require.ErrorContains(t, r.all(t.Context()), "there is no chart in ")
}
