// Package relay passes TCP connections on without a look at what they carry. The kernel moves the bytes where it can. What
// that takes, every program takes that stands between two others: it is measured beside those that do more.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Command is how the benchmark calls itself to be a relay: with an address to listen at, and one to connect to.
const Command = "relay"

// Serve passes on what connects to the listener, to an address, until the context ends, which is no error. The listener is
// closed then.
func Serve(ctx context.Context, listener net.Listener, to string) error {
	var open sync.WaitGroup
	defer open.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		near, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return errors.Join(err, listener.Close())
		}
		open.Go(func() { pass(ctx, near, to) })
	}
}

// pass passes on one connection until both ends have finished, either breaks, or the context ends.
func pass(ctx context.Context, near net.Conn, to string) {
	defer near.Close()
	far, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return // the one who connected sees that it ends
	}
	defer far.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = near.Close()
		_ = far.Close()
	})
	defer stop()
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() { move(near, far) })
	move(far, near)
}

// move passes on one direction. If that breaks, so does the connection.
func move(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = to.(*net.TCPConn).CloseWrite() // which fails if it is closed
}
