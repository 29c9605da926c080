// Package port finds TCP ports on loopback that programs of the lab may listen on.
package port

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that operating systems use for outgoing connections, so that a program that is
// stopped for a while finds its port free when it comes back.
const (
	lowest = 12000
	beyond = 32000
	tries  = 1000
)

// ErrNone means that no free port was found.
var ErrNone = errors.New("no free port on 127.0.0.1")

// Allocator gives out each port once. The zero value is ready; its methods may be called by many goroutines.
type Allocator struct {
	mu    sync.Mutex // guards given
	given map[int]bool
}

// Free returns a port that nothing listens on now. Another program may take it before the caller does: whoever starts a
// listener on it must be ready to ask again.
func (a *Allocator) Free() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.given == nil {
		a.given = make(map[int]bool)
	}
	for range tries {
		port := lowest + rand.IntN(beyond-lowest)
		if !a.given[port] && free(port) {
			a.given[port] = true
			return port, nil
		}
	}
	return 0, ErrNone
}

func free(port int) bool {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// Address is the address of a port on loopback, as host:port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
