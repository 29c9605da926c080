package port

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// hold keeps a port until what it returns is closed: a socket that is bound to it and does not listen. Whoever looks for
// a free port finds this one taken, and whoever connects to it is refused. A program that was told of it can listen,
// because it allows addresses to be used again, as all servers do; so can one that comes back after a while.
func hold(port int) (io.Closer, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	held := os.NewFile(uintptr(socket), fmt.Sprint("port ", port))
	// Binding comes before the leave to use the address again: so it fails when anybody else is bound to the port, be it
	// another lab that only holds it.
	err = syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = held.Close()
		return nil, fmt.Errorf("hold port %d: %w", port, err)
	}
	return held, nil
}
