//go:build race

package socket

import "syscall"

// The race detector sees what package syscall reads and writes.

func read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) } //nolint:gosec // a small number

func write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) } //nolint:gosec // a small number
