package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdx "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/require"
)

// released makes the images of a small product, and returns the folder of its program's.
func released(t *testing.T) (folder string) {
	t.Helper()
	out := t.TempDir()
	r := release{
		root: filepath.Join("testdata", "product"), out: out, version: "v1.2.3", revision: "abc", created: time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC),
		platforms: []platform{{"linux", "amd64"}, {"linux", "arm64"}}, programs: []product{{"hello", "say-hello", "It says hello", true}},
	}
	require.NoError(t, r.images(t.Context(), out))
	return out
}

// indexIn returns the one image that a folder has, of several platforms.
func indexIn(t *testing.T, folder string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	at, err := layout.ImageIndexFromPath(folder)
	require.NoError(t, err)
	require.NoError(t, validate.Index(at))
	manifest, err := at.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	index, err := at.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index, manifest.Manifests[0]
}

func TestImageHasOneStaticProgramForEachPlatform(t *testing.T) {
	t.Parallel()
	index, about := indexIn(t, filepath.Join(released(t), "say-hello"))
	require.Equal(t, "v1.2.3", about.Annotations["org.opencontainers.image.ref.name"])
	require.Equal(t, "ghcr.io/argocd-agent-mesh/say-hello:v1.2.3", about.Annotations["io.containerd.image.name"])
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	require.Len(t, manifest.Manifests, len(machines))
	for _, of := range manifest.Manifests {
		image, err := index.Image(of.Digest)
		require.NoError(t, err)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, of.Platform.Architecture, config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User)
		require.Equal(t, []string{"/say-hello"}, config.Config.Entrypoint)
		require.Equal(t, "v1.2.3", config.Config.Labels["org.opencontainers.image.version"])
		require.Equal(t, "abc", config.Config.Labels["org.opencontainers.image.revision"])
		require.Equal(t, "2026-11-01T02:03:04Z", config.Config.Labels["org.opencontainers.image.created"])

		files := filesIn(t, image)
		require.Len(t, files, 1, "there is nothing but the program")
		program, err := elf.NewFile(bytes.NewReader(files["say-hello"]))
		require.NoError(t, err)
		require.Equal(t, machines[of.Platform.Architecture], program.Machine)
		libraries, err := program.ImportedLibraries()
		require.NoError(t, err)
		require.Empty(t, libraries, "it needs nothing that is not there")
	}
}

// filesIn returns the files of an image, and fails if somebody may write to one.
func filesIn(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	content := mutate.Extract(image)
	defer func() { require.NoError(t, content.Close()) }()
	files := make(map[string][]byte)
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.EqualValues(t, 0o555, h.Mode)
		files[h.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
}

// Who builds the same source again, at another time and place, has the same images.
func TestImagesAreReproducible(t *testing.T) {
	t.Parallel()
	first, second := released(t), released(t)
	index, _ := indexIn(t, filepath.Join(first, "say-hello"))
	again, _ := indexIn(t, filepath.Join(second, "say-hello"))
	digest, err := index.Digest()
	require.NoError(t, err)
	other, err := again.Digest()
	require.NoError(t, err)
	require.Equal(t, digest, other)
	for _, arch := range []string{"amd64", "arm64"} {
		name := "say-hello_linux_" + arch + ".spdx.json"
		require.Equal(t, read(t, first, name), read(t, second, name))
	}
}

func read(t *testing.T, folder, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return text
}

func TestListNamesModulesAsDatabasesKnowThem(t *testing.T) {
	t.Parallel()
	text := read(t, released(t), "say-hello_linux_arm64.spdx.json")
	require.True(t, json.Valid(text))
	document, err := spdx.Read(bytes.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, spdxlib.ValidateDocument(document))
	described, err := spdxlib.GetDescribedPackageIDs(document)
	require.NoError(t, err)
	require.Len(t, described, 1)
	locators := make(map[string]string)
	for _, p := range document.Packages {
		require.Len(t, p.PackageExternalReferences, 1)
		locators[p.PackageName] = p.PackageExternalReferences[0].Locator
	}
	require.Equal(t, "pkg:golang/example.org/product@v1.2.3", locators["say-hello"])
	require.Equal(t, "pkg:golang/golang.org/x/sync@v0.24.0", locators["golang.org/x/sync"])
	require.Regexp(t, `^pkg:golang/stdlib@1\.\d+`, locators["stdlib"])
}

// What cannot be built is said, and by which command.
func TestProgramThatDoesNotBuild(t *testing.T) {
	t.Parallel()
	r := release{root: filepath.Join("testdata", "product"), out: t.TempDir(), platforms: []platform{{"linux", "amd64"}}, programs: []product{{"gone", "gone", "", false}}}
	require.ErrorContains(t, r.images(t.Context(), r.out), "image of gone: build ./gone for linux/amd64")
	require.ErrorContains(t, run(t.Context(), []string{"images", "-platforms", "linux"}), `want names such as linux/arm64`)
}
