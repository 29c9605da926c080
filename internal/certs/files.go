package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long changes are gathered before files are read again: an update is rarely a single change.
const settle = 100 * time.Millisecond

// maxLinks bounds the symbolic links that are followed on the way to one file.
const maxLinks = 40

// files is an Origin of one or more files, all read together.
type files struct {
	paths  []string
	blocks func(contents [][]byte) Blocks
}

// PairFiles returns an Origin that reads a certificate (with its chain, if any) and its key from PEM files.
func PairFiles(certificate, key string) Origin {
	return files{paths: []string{certificate, key}, blocks: func(contents [][]byte) Blocks {
		return Blocks{Certificate: contents[0], Key: contents[1]}
	}}
}

// RootsFile returns an Origin that reads trusted authorities from one PEM file.
func RootsFile(path string) Origin {
	return files{paths: []string{path}, blocks: func(contents [][]byte) Blocks {
		return Blocks{Authorities: contents[0]}
	}}
}

func (f files) String() string {
	if len(f.paths) == 1 {
		return "file " + f.paths[0]
	}
	return "files " + strings.Join(f.paths, " and ")
}

// Watch follows the files by watching directories: Kubernetes updates a mounted Secret by swapping a symbolic link
// beside the files, and other tools by renaming, so that a watch on a file itself would soon watch what is gone.
func (f files) Watch(ctx context.Context, report func(Blocks, error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("start watching (is fs.inotify.max_user_instances too low?): %w", err)
	}
	defer func() { _ = watcher.Close() }()
	due := time.NewTimer(0)
	defer due.Stop()
	pending := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
			pending = false
			if err := f.cover(watcher); err != nil {
				return err
			}
			report(f.read())
			continue
		case <-watcher.Events:
		case _, open := <-watcher.Errors: // an overflow, mostly: anything may have happened
			if !open {
				return errors.New("the watcher has stopped")
			}
		}
		if !pending {
			pending = true
			due.Reset(settle)
		}
	}
}

// read returns the contents of all files, or an error that names each one that cannot be read.
func (f files) read() (Blocks, error) {
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

// cover makes the watcher watch every directory that decides what the paths lead to, and no other. A link may change
// between being looked at and being watched, so it looks again until there is nothing new to watch.
func (f files) cover(watcher *fsnotify.Watcher) error {
	for {
		wanted, err := f.directories()
		if err != nil {
			return err
		}
		watched := watcher.WatchList()
		for _, directory := range watched {
			if !slices.Contains(wanted, directory) {
				_ = watcher.Remove(directory) // it fails when the directory is gone, which is just as well
			}
		}
		grown := false
		for _, directory := range wanted {
			if slices.Contains(watched, directory) {
				continue
			}
			if err := watcher.Add(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("watch directory %s: %w", directory, err)
			}
			grown = true
		}
		if !grown {
			return nil
		}
	}
}

// directories lists those whose entries decide what the paths lead to.
func (f files) directories() ([]string, error) {
	var all []string
	for _, path := range f.paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", path, err)
		}
		all = append(all, deciding(absolute)...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// deciding walks to the absolute path, and returns the real directories in which it met a symbolic link, a missing
// entry (where the walk ends) or the file itself.
func deciding(path string) []string {
	const separator = string(filepath.Separator)
	var found []string
	directory, rest := separator, strings.Split(strings.Trim(path, separator), separator)
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		entry := filepath.Join(directory, rest[0])
		info, err := os.Lstat(entry)
		switch {
		case err != nil:
			return append(found, directory)
		case info.Mode()&fs.ModeSymlink != 0:
			found = append(found, directory)
			target, err := os.Readlink(entry)
			if err != nil {
				return found
			}
			if filepath.IsAbs(target) {
				directory = separator
			}
			links++
			rest = append(strings.Split(strings.Trim(target, separator), separator), rest[1:]...)
		case len(rest) == 1:
			return append(found, directory)
		default:
			directory, rest = entry, rest[1:]
		}
	}
	return found
}
