// Package files follows files as they change: mounted Secrets and ConfigMaps, and whatever else rewrites files.
package files

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// debounce is how long changes are gathered before files are read again: an update is rarely a single change.
	debounce = 100 * time.Millisecond
	// maxLinks bounds the symbolic links that are followed on the way to one file.
	maxLinks = 40
)

// Follow calls changed at the start, and then after each change of any of the paths, which may name files or folders and
// need not exist. It calls it from one goroutine, its own, and blocks until ctx ends, which is no error, or until nothing can
// be watched at all.
//
// It watches directories: Kubernetes updates a mounted Secret by swapping a symbolic link beside the files, and other tools
// by renaming, so that a watch on a file itself would soon watch what is gone.
func Follow(ctx context.Context, paths []string, changed func()) error {
	f, err := process.join()
	if err != nil {
		return err
	}
	defer process.leave(f)
	due := time.NewTimer(0)
	defer due.Stop()
	pending := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
			pending = false
			if err := f.watchDirectories(paths); err != nil {
				return err
			}
			changed()
		case <-f.changed:
			if !pending {
				pending = true
				due.Reset(debounce)
			}
		}
	}
}

// watchDirectories makes the follower watch every directory that decides what the paths lead to, and no other. A link may change
// between being looked at and being watched, so it looks again until there is nothing new to watch.
func (f *follower) watchDirectories(paths []string) error {
	for {
		wanted, err := directories(paths)
		if err != nil {
			return err
		}
		grown, err := process.watch(f, wanted)
		if err != nil || !grown {
			return err
		}
	}
}

// directories lists those whose entries decide what the paths lead to.
func directories(paths []string) ([]string, error) {
	var all []string
	for _, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("path %s: %w", path, err)
		}
		all = append(all, directoriesOf(absolute)...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// directoriesOf walks to the absolute path, and returns the real directories in which it met a symbolic link, a missing
// entry (where the walk ends) or what the path names, and that itself if it is a folder.
func directoriesOf(path string) []string {
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
		case len(rest) == 1 && info.IsDir():
			return append(found, directory, entry)
		case len(rest) == 1:
			return append(found, directory)
		default:
			directory, rest = entry, rest[1:]
		}
	}
	return found
}
