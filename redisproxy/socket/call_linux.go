//go:build !race

package socket

import (
	"syscall"
	"unsafe"
)

func read(fd uintptr, p []byte) (int, error) { return call(syscall.SYS_READ, fd, p) }

func write(fd uintptr, p []byte) (int, error) { return call(syscall.SYS_WRITE, fd, p) }

// call makes a system call that cannot wait, as Go's sockets do not block. So its scheduler is not told of it, as package
// syscall would: where there are few processors, it often gives ours away before even so short a call is over.
func call(trap, fd uintptr, p []byte) (int, error) {
	n, _, err := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))) //nolint:gosec // in the form that unsafe allows
	if err != 0 {
		return 0, err
	}
	return int(n), nil
}
