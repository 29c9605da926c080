package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// member is a file in an archive.
type member struct {
	name, from string // in the archive, and on this machine
	mode       int64
}

// packPrograms puts programs and what goes with them into one archive for a platform: a zip file for Windows, whose people have no tar.
func (r release) packPrograms(ctx context.Context, name string, programs []product, on platform, folder string) error {
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is a temporary folder
	title := fmt.Sprintf("%s_%s_%s_%s", name, r.version, on.os, on.arch)
	all := []member{
		{path.Join(title, "CHANGELOG.md"), filepath.Join(r.root, "CHANGELOG.md"), 0o644},
		{path.Join(title, "LICENSE"), filepath.Join(r.root, "LICENSE"), 0o644},
	}
	for _, p := range programs {
		file := p.file
		if on.os == "windows" {
			file += ".exe"
		}
		if err := r.build(ctx, p, on, filepath.Join(work, file)); err != nil {
			return err
		}
		all = append(all, member{path.Join(title, file), filepath.Join(work, file), 0o755})
	}
	if on.os == "windows" {
		return writeArchive(filepath.Join(folder, title+".zip"), func(to io.Writer) error { return zipped(to, all, r.created) })
	}
	return writeArchive(filepath.Join(folder, title+".tar.gz"), func(to io.Writer) error { return zippedTar(to, all, r.created) })
}

// packImage puts an image's OCI layout into one file, as `skopeo copy oci-archive:` and `ctr images import` take it.
func (r release) packImage(p product, layout, folder string) error {
	all, err := filesOf(layout, "")
	if err != nil {
		return err
	}
	// What is in it is compressed already.
	return writeArchive(filepath.Join(folder, fmt.Sprintf("%s_%s_image.tar", p.file, r.version)), func(to io.Writer) error { return tarred(to, all, r.created) })
}

// filesOf lists the files of a folder, in order, as members below a name.
func filesOf(folder, below string) ([]member, error) {
	var all []member
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		all = append(all, member{path.Join(below, filepath.ToSlash(name)), file, 0o644})
		return nil
	})
	return all, err
}

// writeArchive writes a file.
func writeArchive(file string, write func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// zippedTar writes a compressed archive.
func zippedTar(to io.Writer, all []member, at time.Time) error {
	z := gzip.NewWriter(to) // no name and no time in its header: the same files give the same archive
	return errors.Join(tarred(z, all, at), z.Close())
}

// tarred writes an archive, of which all is root's and of one time.
func tarred(to io.Writer, all []member, at time.Time) error {
	w := tar.NewWriter(to)
	for _, m := range sorted(all) {
		err := m.copied(func(size int64) (io.Writer, error) {
			return w, w.WriteHeader(&tar.Header{Name: m.name, Typeflag: tar.TypeReg, Mode: m.mode, Size: size, ModTime: at, Format: tar.FormatPAX})
		})
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func zipped(to io.Writer, all []member, at time.Time) error {
	w := zip.NewWriter(to)
	for _, m := range sorted(all) {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: at}
		h.SetMode(fs.FileMode(m.mode)) //nolint:gosec // the modes are constants of ours
		if err := m.copied(func(int64) (io.Writer, error) { return w.CreateHeader(h) }); err != nil {
			return err
		}
	}
	return w.Close()
}

func sorted(all []member) []member {
	return slices.SortedFunc(slices.Values(all), func(a, b member) int { return strings.Compare(a.name, b.name) })
}

// copied writes the member's content to where begin says, which is told its size in bytes.
func (m member) copied(begin func(size int64) (io.Writer, error)) error {
	f, err := os.Open(m.from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	to, err := begin(info.Size())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	return err
}
