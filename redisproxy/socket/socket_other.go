//go:build !linux

package socket

const supported = false

func readNow(uintptr, []byte) (int, error) { return 0, ErrWouldBlock }

func writeNow(uintptr, []byte) (int, error) { return 0, ErrWouldBlock }
