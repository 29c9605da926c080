// Package image makes OCI images of files and nothing else: there is no base image, no daemon and no registry. The same files make the same
// image, to the byte.
package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Content is what an image is made of.
type Content struct {
	// Files are the paths in the image, and where on this machine their content is. Who may execute it there may in the image; nobody may
	// write. Links are symbolic links, and what they lead to. Paths are absolute. Folders are made as needed, /tmp open to all.
	Files, Links map[string]string
	// Folders are others that there are to be.
	Folders []string
	// Config is what runs of it, and how.
	Config v1.Config
	// Platform is what the files are for, such as linux/arm64.
	Platform v1.Platform
	// Created is when the content was made. It is the time of all files too.
	Created time.Time
}

// Build makes the image, in memory.
func Build(c Content) (v1.Image, error) {
	text, err := c.layer()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	config, err := base.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Variant = c.Platform.Architecture, c.Platform.OS, c.Platform.Variant
	config.Created, config.Config = v1.Time{Time: c.Created}, c.Config
	made, err := mutate.ConfigFile(base, config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return mutate.Append(made, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: c.Created}}})
}

// layer returns the files as a tar archive, in the order of their paths.
func (c Content) layer() ([]byte, error) {
	var archive bytes.Buffer
	w := writer{tar: tar.NewWriter(&archive), made: map[string]bool{"": true}, at: c.Created}
	all := slices.Concat(slices.Collect(maps.Keys(c.Files)), slices.Collect(maps.Keys(c.Links)), c.Folders)
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if !path.IsAbs(name) || path.Clean(name) != name {
			return nil, fmt.Errorf("path %q in the image: want an absolute one, such as /bin/sh", name)
		}
		if err := w.folder(path.Dir(name)); err != nil {
			return nil, err
		}
		var err error
		from, isFile := c.Files[name]
		to, isLink := c.Links[name]
		switch {
		case isFile && isLink:
			err = errors.New("it is a file and a link")
		case isFile:
			err = w.file(name, from)
		case isLink:
			err = w.entry(tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777})
		default:
			err = w.folder(name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := w.tar.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// writer writes a layer, of which all is root's.
type writer struct {
	tar  *tar.Writer
	made map[string]bool // folders, without the slashes around them
	at   time.Time
}

func (w *writer) entry(h tar.Header) error {
	h.Name, h.ModTime, h.Format = strings.TrimPrefix(h.Name, "/"), w.at, tar.FormatPAX
	return w.tar.WriteHeader(&h)
}

// folder makes a folder, and those that it is in, unless they are there.
func (w *writer) folder(name string) error {
	key := strings.Trim(name, "/")
	if w.made[key] {
		return nil
	}
	if err := w.folder(path.Dir(name)); err != nil {
		return err
	}
	w.made[key] = true
	h := tar.Header{Name: key + "/", Typeflag: tar.TypeDir, Mode: 0o755}
	if name == "/tmp" {
		h.Mode = 0o1777
	}
	return w.entry(h)
}

// file copies a file of this machine.
func (w *writer) file(name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o444, Size: info.Size()}
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o555
	}
	if err := w.entry(h); err != nil {
		return err
	}
	_, err = io.Copy(w.tar, f)
	return err
}
