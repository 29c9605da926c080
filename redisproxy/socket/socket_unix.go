//go:build unix

package socket

import (
	"errors"
	"syscall"
)

const supported = true

func readNow(fd uintptr, p []byte) (int, error) {
	n, err := syscall.Read(int(fd), p)
	return n, wouldBlock(err)
}

func writeNow(fd uintptr, p []byte) (int, error) {
	n, err := syscall.Write(int(fd), p)
	return n, wouldBlock(err)
}

func wouldBlock(err error) error {
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return ErrWouldBlock
	}
	return err
}
