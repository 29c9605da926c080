package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// slots is how many labs with nodes there may be on a machine at once: each has a 10.X.0.0/16.
const slots = 16

// slot is what tells labs with nodes apart.
type slot struct {
	number int
	lock   *os.File // names the folder of the lab that holds it
}

func lockPath(number int) string {
	return statePath("nodes-" + strconv.Itoa(number) + ".lock")
}

// takeSlot takes the first that is free for a lab in a folder, once what labs have left is removed that hold none any more.
func takeSlot(ctx context.Context, dir string) (*slot, error) {
	if err := Sweep(ctx); err != nil {
		return nil, err
	}
	for number := range slots {
		s, err := hold(number)
		if err != nil {
			return nil, err
		}
		if s != nil {
			return s, s.note(dir)
		}
	}
	return nil, fmt.Errorf("all %d slots of labs with nodes are taken", slots)
}

// Sweep removes what labs with nodes have left on this machine that were killed.
func Sweep(ctx context.Context) error {
	if err := ownFolder(state); err != nil {
		return fmt.Errorf("locks of nodes: %w", err)
	}
	var failures []error
	for number := range slots {
		s, err := hold(number)
		if s != nil {
			err = s.release(ctx)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// hold locks a slot, or returns nil if a lab has it.
func hold(number int) (*slot, error) {
	lock, err := os.OpenFile(lockPath(number), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of nodes: %w", err)
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil, lock.Close()
	}
	return &slot{number, lock}, nil
}

// note writes down whose the slot is.
func (s *slot) note(dir string) error {
	if err := s.lock.Truncate(0); err != nil {
		return fmt.Errorf("lock of nodes: %w", err)
	}
	if _, err := s.lock.WriteAt([]byte(dir), 0); err != nil {
		return fmt.Errorf("lock of nodes: %w", err)
	}
	return nil
}

// Names of what the kernel keeps. Those of links have at most 15 bytes.
func (s *slot) bridge() string             { return fmt.Sprintf("amesh%d", s.number) }
func (s *slot) namespace(index int) string { return fmt.Sprintf("amesh-%d-%d", s.number, index) }
func (s *slot) cgroup() string             { return fmt.Sprintf("/argocd-agent-mesh-%d", s.number) }
func (s *slot) address(third, last int) string {
	return fmt.Sprintf("10.%d.%d.%d", 100+s.number, third, last)
}
func (s *slot) gateway() string       { return s.address(0, 1) }
func (s *slot) node(index int) string { return s.address(0, 10+index) }
func (s *slot) pods(index int) string { return s.address(index, 0) + "/24" }

// sweep removes all that a lab has left in this slot: processes first, then what they held. It does nothing where there is nothing.
func (s *slot) sweep(ctx context.Context) error {
	was, err := os.ReadFile(s.lock.Name())
	if err != nil {
		return err
	}
	failures := []error{killAll(s.cgroup()), unmountBelow(string(was))}
	spaces, err := filepath.Glob("/run/netns/" + fmt.Sprintf("amesh-%d-*", s.number))
	failures = append(failures, err)
	for _, space := range spaces {
		failures = append(failures, ip(ctx, "netns", "delete", filepath.Base(space)))
	}
	if _, err := os.Stat("/sys/class/net/" + s.bridge()); err == nil {
		failures = append(failures, ip(ctx, "link", "delete", s.bridge()))
	}
	failures = append(failures, removeCgroups(s.cgroup()))
	if strings.HasPrefix(filepath.Base(string(was)), "argocd-agent-mesh-lab-") && !living(string(was)) {
		failures = append(failures, os.RemoveAll(string(was)))
	}
	failures = append(failures, restoreSettings(s.number))
	return errors.Join(failures...)
}

// living says whether the lab in a folder is: it holds a lock there.
func living(dir string) bool {
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer func() { _ = lock.Close() }() // it was only asked
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// release removes all that the slot's lab has in the kernel, and lets another have the slot.
func (s *slot) release(ctx context.Context) error {
	err := s.sweep(ctx)
	return errors.Join(err, s.lock.Truncate(0), s.lock.Close())
}

func ip(ctx context.Context, args ...string) error { return command(ctx, "ip", args...) }

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
