package socket

import (
	"errors"
	"syscall"
	"unsafe"
)

const supported = true

func readNow(fd uintptr, p []byte) (int, error) { return now(syscall.SYS_READ, fd, p) }

func writeNow(fd uintptr, p []byte) (int, error) { return now(syscall.SYS_WRITE, fd, p) }

// now makes a system call that cannot wait, as Go's sockets do not block. So its scheduler need not be told: package syscall
// does that, and where there are few processors, some other goroutine often has ours before such a call is over.
func now(call, fd uintptr, p []byte) (int, error) {
	for {
		n, _, err := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))) //nolint:gosec // as syscall.Read has it
		switch {
		case err == 0:
			return int(n), nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, ErrWouldBlock
		default:
			return 0, err
		}
	}
}
