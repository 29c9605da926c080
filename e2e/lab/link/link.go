// Package link is a network cable of the lab: a TCP proxy on loopback between two parts, which can be cut, slowed and
// reset. It knows nothing of what it carries.
package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout bounds the dial to the target, which is on the same machine.
const dialTimeout = 5 * time.Second

// Traffic counts bytes carried since the link began, as its target's clients see them.
type Traffic struct {
	Sent     int64 // from the one who dialled to the target
	Received int64 // from the target
}

// Link listens on a port of its own and carries each connection to its target. Its methods may be called by many
// goroutines.
type Link struct {
	name     string
	listener net.Listener
	cancel   context.CancelFunc
	work     sync.WaitGroup // the accepting goroutine and the cables

	sent, received atomic.Int64

	mu      sync.Mutex // guards all below
	gate    *gate      // what the cables' bytes wait for
	targets []string   // of new connections, in turns
	turn    int
	refuse  bool
	delay   time.Duration
	cables  map[*cable]struct{}
	closed  bool
}

// New lays a link to the target, a host:port that need not listen yet. The name is what errors call it. It is Close that
// ends the link, not the end of ctx.
func New(ctx context.Context, name, target string) (*Link, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Link{
		name: name, targets: []string{target}, listener: listener, cancel: cancel,
		gate: newGate(), cables: make(map[*cable]struct{}),
	}
	l.work.Go(func() { l.accept(ctx) })
	return l, nil
}

// Name is the link's name.
func (l *Link) Name() string { return l.name }

// Target is the host:port that connections are carried to, the first if there are several.
func (l *Link) Target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.targets[0]
}

// Move has new connections carried to another target, as a load balancer does. Present ones stay where they are; Reset ends them.
func (l *Link) Move(target string) { l.Spread(target) }

// Spread has new connections carried to several targets in turns, as a Service does. One that does not listen is passed over.
func (l *Link) Spread(targets ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets = targets
}

// inTurn returns the targets of a new connection, the one whose turn it is first. mu is held.
func (l *Link) inTurn() []string {
	l.turn++
	at := l.turn % len(l.targets)
	return slices.Concat(l.targets[at:], l.targets[:at])
}

// Address is the host:port to dial instead of the target.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Port is the port of Address.
func (l *Link) Port() int { return l.listener.Addr().(*net.TCPAddr).Port }

// Cut lets nothing through any more, in either direction and without a word to either end, as if a cable were pulled:
// not even that an end closes its connection. Bytes on their way wait, as they would wait to be sent again.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate.shut()
}

// Reset ends the present connections with a TCP reset to both ends. New ones are carried.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resetLocked()
}

// Refuse resets the present connections, and every new one as soon as it is made.
func (l *Link) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = true
	l.resetLocked()
}

// Delay makes everything arrive later by d, each direction for itself, without making it less. It adds 2d to a round
// trip.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Restore undoes Cut, Refuse and Delay. Connections that lived through a Cut go on where they were.
func (l *Link) Restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse, l.delay = false, 0
	l.gate.open()
}

// Connections tells how many connections are carried now.
func (l *Link) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.cables)
}

// Traffic tells how much was carried so far.
func (l *Link) Traffic() Traffic {
	return Traffic{Sent: l.sent.Load(), Received: l.received.Load()}
}

// Close resets the connections, stops listening, and returns when nothing of the link is left.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.resetLocked()
	l.mu.Unlock()
	l.cancel()
	err := l.listener.Close()
	l.work.Wait()
	return err
}

func (l *Link) resetLocked() {
	for c := range l.cables {
		c.reset()
	}
}

func (l *Link) accept(ctx context.Context) {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one connection: it was gone before it was accepted
		}
		l.admit(ctx, conn.(*net.TCPConn))
	}
}

func (l *Link) admit(ctx context.Context, near *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse || l.closed {
		abort(near)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &cable{link: l, near: near, targets: l.inTurn(), cancel: cancel}
	l.cables[c] = struct{}{}
	l.work.Go(func() {
		defer l.remove(c)
		c.run(ctx)
	})
}

func (l *Link) remove(c *cable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cables, c)
}

// way is how bytes travel now.
func (l *Link) way() (gate <-chan struct{}, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate.pass, l.delay
}

// abort closes a connection with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails only on a connection that is closed already, as does Close
	_ = conn.Close()
}

// gate is open when its channel is closed.
type gate struct{ pass chan struct{} }

func newGate() *gate {
	g := &gate{pass: make(chan struct{})}
	close(g.pass)
	return g
}

func (g *gate) isOpen() bool {
	select {
	case <-g.pass:
		return true
	default:
		return false
	}
}

func (g *gate) shut() {
	if g.isOpen() {
		g.pass = make(chan struct{})
	}
}

func (g *gate) open() {
	if !g.isOpen() {
		close(g.pass)
	}
}
