// Package port finds TCP ports on loopback that programs of the lab may listen on.
package port

import (
	"errors"
	"fmt"
	"io"
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

// Allocator gives out each port once, and holds it until Close: nobody else finds it free meanwhile, be it long before
// the program that it is for listens, or while that is stopped. The zero value is ready; its methods may be called by many
// goroutines.
type Allocator struct {
	mu   sync.Mutex // guards held
	held map[int]io.Closer
}

// Free returns a port that is the caller's until Close. A program that insists on just this port may listen on it all the
// same: whoever starts a listener and can choose should be ready to ask again.
func (a *Allocator) Free() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == nil {
		a.held = make(map[int]io.Closer)
	}
	var last error
	for range tries {
		port := lowest + rand.IntN(beyond-lowest)
		if a.held[port] != nil {
			continue
		}
		held, err := hold(port)
		if err == nil {
			a.held[port] = held
			return port, nil
		}
		last = err
	}
	return 0, fmt.Errorf("%w: the last one tried: %w", ErrNone, last)
}

// Close lets go of all ports.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var failures []error
	for _, held := range a.held {
		failures = append(failures, held.Close())
	}
	a.held = nil
	return errors.Join(failures...)
}

// Address is the address of a port on loopback, as host:port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
