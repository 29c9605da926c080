package certs

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/files"
)

// fileOrigin is an Origin of one or more files, all read together.
type fileOrigin struct {
	paths  []string
	blocks func(contents [][]byte) Blocks
}

// PairFiles returns an Origin that reads a certificate (with its chain, if any) and its key from PEM files.
func PairFiles(certificate, key string) Origin {
	return fileOrigin{paths: []string{certificate, key}, blocks: func(contents [][]byte) Blocks {
		return Blocks{Certificate: contents[0], Key: contents[1]}
	}}
}

// RootsFile returns an Origin that reads trusted CAs from one PEM file.
func RootsFile(path string) Origin {
	return fileOrigin{paths: []string{path}, blocks: func(contents [][]byte) Blocks {
		return Blocks{CAs: contents[0]}
	}}
}

func (f fileOrigin) String() string {
	if len(f.paths) == 1 {
		return "file " + f.paths[0]
	}
	return "files " + strings.Join(f.paths, " and ")
}

// Watch follows the files.
func (f fileOrigin) Watch(ctx context.Context, report func(Blocks, error)) error {
	return files.Follow(ctx, f.paths, func() { report(f.read()) })
}

// read returns the contents of all files, or an error that names each one that cannot be read.
func (f fileOrigin) read() (Blocks, error) {
	contents := make([][]byte, len(f.paths))
	var problems []error
	for i, path := range f.paths {
		var err error
		if contents[i], err = os.ReadFile(path); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return Blocks{}, errors.Join(problems...)
	}
	return f.blocks(contents), nil
}
