//go:build unix

package roundtrip

import (
	"errors"
	"syscall"
)

// silent reports whether a socket has nothing to read, not even an end.
func silent(socket syscall.Conn) bool {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var said error
	err = raw.Read(func(descriptor uintptr) bool {
		_, _, said = syscall.Recvfrom(int(descriptor), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true // do not wait until there is something
	})
	return err == nil && errors.Is(said, syscall.EAGAIN)
}
