package socket

import (
	"errors"
	"syscall"
)

const supported = true

func readNow(fd uintptr, p []byte) (int, error) { return now(read, fd, p) }

func writeNow(fd uintptr, p []byte) (int, error) { return now(write, fd, p) }

// now makes a call, which an interruption does not end.
func now(call func(fd uintptr, p []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(fd, p)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, ErrWouldBlock
		default:
			return 0, err
		}
	}
}
