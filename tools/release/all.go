package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A version of a release is a semantic one, as Go and Helm write it.
var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// clientPlatforms are where people run the command line tool.
func clientPlatforms() []platform {
	return []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}
}

// all makes a whole release in a folder of its version: what a release page offers to download. It checks what it can before it builds.
func (r release) all(ctx context.Context) error {
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("version %q: want a semantic version such as v0.1.0", r.version)
	}
	notes, err := changes(filepath.Join(r.root, "CHANGELOG.md"), r.version)
	if err != nil {
		return err
	}
	charts, err := r.charts()
	if err != nil {
		return err
	}
	if err := r.mentions(); err != nil {
		return err
	}
	folder := filepath.Join(r.out, r.version)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil { // nothing of an earlier attempt is left
		return err
	}
	if err := r.programsAndImages(ctx, folder); err != nil {
		return err
	}
	for _, c := range charts {
		if err := r.packChart(c, folder); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "RELEASE_NOTES.md"), notes, 0o644); err != nil {
		return err
	}
	return checksums(folder)
}

// programsAndImages makes the images, as one file each, and the archives of programs.
func (r release) programsAndImages(ctx context.Context, folder string) error {
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is a temporary folder
	if err := r.images(ctx, work); err != nil {
		return err
	}
	lists, err := filepath.Glob(filepath.Join(work, "*.spdx.json"))
	if err != nil {
		return err
	}
	for _, list := range lists {
		if err := copyFile(list, filepath.Join(folder, filepath.Base(list))); err != nil {
			return err
		}
	}
	for _, p := range r.programs {
		if err := r.packImage(p, filepath.Join(work, p.file), folder); err != nil {
			return fmt.Errorf("image of %s: %w", p.folder, err)
		}
	}
	for _, on := range r.platforms {
		if err := r.packPrograms(ctx, "argocd-agent-mesh", r.programs, on, folder); err != nil {
			return err
		}
	}
	for _, p := range r.programs {
		for _, on := range clientPlatforms() {
			if p.client {
				if err := r.packPrograms(ctx, p.file, []product{p}, on, folder); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// checksums writes the digests of all files of a folder, for sha256sum --check, and says what there is.
func checksums(folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, entry := range files {
		digest, size, err := digest(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%s  %s\n", digest, entry.Name())
		fmt.Printf("%8.1f MB  %s\n", float64(size)/1e6, entry.Name())
	}
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(all.String()), 0o644)
}

func digest(file string) (hex string, size int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	if size, err = io.Copy(hash, f); err != nil {
		return "", 0, err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), size, nil
}
