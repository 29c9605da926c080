package fleet

import (
	"context"
	"net"
	"sync"
)

// way is how an agent gets to principals: to each in turns.
type way struct {
	from net.IP // one of loopback's addresses
	to   []string

	mu   sync.Mutex
	turn int      // whose it is. Guarded by mu
	last net.Conn // that was made. Guarded by mu
}

func newWay(index int, to []string) *way {
	return &way{from: net.IPv4(127, 0, 1, byte(1+index/portsPerAddress%addresses)), to: to, turn: index} //nolint:gosec // there are not that many addresses
}

// dial connects to the principal whose turn it is.
func (w *way) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	address := w.to[w.turn%len(w.to)]
	w.turn++
	w.mu.Unlock()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: w.from}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = conn
	return conn, nil
}

// cut ends the last connection.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		_ = w.last.Close() // it may be over
	}
}
