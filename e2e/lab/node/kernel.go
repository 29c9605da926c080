package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const cgroups = "/sys/fs/cgroup"

// hierarchies are the cgroup trees that there are: one of version 2, or one for each controller of version 1.
func hierarchies() ([]string, error) {
	if unified() {
		return []string{cgroups}, nil
	}
	entries, err := os.ReadDir(cgroups)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, entry := range entries {
		path := filepath.Join(cgroups, entry.Name())
		if info, err := os.Lstat(path); err != nil || !info.IsDir() { // names of controllers that share a tree are links
			continue
		}
		if _, err := os.Stat(filepath.Join(path, "cgroup.procs")); err == nil && entry.Name() != "unified" {
			all = append(all, path)
		}
	}
	return all, nil
}

// unified says whether all controllers are in the one tree of version 2.
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	return err == nil
}

// makeCgroup makes a cgroup in every tree. Of version 1 the one of CPUs has to be told which it has.
func makeCgroup(name string) error {
	trees, err := hierarchies()
	if err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	for _, tree := range trees {
		path := tree
		for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
			parent := path
			path = filepath.Join(path, part)
			if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("cgroup: %w", err)
			}
			if err := inherit(parent, path); err != nil {
				return fmt.Errorf("cgroup %s: %w", path, err)
			}
		}
	}
	return nil
}

// inherit gives a new cgroup what its parent has, as far as the kernel does not.
func inherit(parent, child string) error {
	if unified() {
		controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		if err != nil {
			return err
		}
		var enable []string
		for name := range strings.FieldsSeq(string(controllers)) {
			enable = append(enable, "+"+name)
		}
		return os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte(strings.Join(enable, " ")), 0)
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		has, err := os.ReadFile(filepath.Join(child, name))
		if err != nil || len(bytes.TrimSpace(has)) > 0 { // it is not the tree of CPUs, or was told
			continue
		}
		from, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, name), from, 0); err != nil {
			return err
		}
	}
	return nil
}

// each calls for a cgroup and all below it, in every tree, the deepest first.
func each(name string, do func(path string) error) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	var failures []error
	for _, tree := range append(trees, filepath.Join(cgroups, "unified")) { // where runc makes some beside those of version 1
		var paths []string
		_ = filepath.WalkDir(filepath.Join(tree, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				paths = append(paths, path)
			}
			return nil // what goes meanwhile is what is wanted
		})
		for _, path := range slices.Backward(paths) {
			failures = append(failures, do(path))
		}
	}
	return errors.Join(failures...)
}

// killAll kills all processes of a cgroup and those below it, and returns when none is left.
func killAll(name string) error {
	for {
		left := 0
		err := each(name, func(path string) error {
			text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err != nil {
				return nil // it is gone
			}
			for pid := range strings.FieldsSeq(string(text)) {
				number, err := strconv.Atoi(pid)
				if err != nil {
					return err
				}
				left++
				if err := kill(number); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || left == 0 {
			return err
		}
	}
}

// endTime is how long a process may take to end that was killed, in milliseconds.
const endTime = 60_000

// kill kills a process, and returns when it has ended.
func kill(pid int) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(handle) }() // it was only waited for
	if err := unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	for {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, endTime) //nolint:gosec // a file descriptor
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("process %d: %w", pid, err)
		case ended == 0:
			return fmt.Errorf("process %d was killed and does not end", pid)
		default:
			return nil
		}
	}
}

func removeCgroups(name string) error {
	return each(name, func(path string) error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// unmountBelow unmounts all that is mounted in a folder, the last first.
func unmountBelow(dir string) error {
	if dir == "" {
		return nil
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	var failures []error
	for _, point := range slices.Backward(points) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) { // it went with another
			failures = append(failures, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(failures...)
}
