package dialer_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// delayProxy is a TCP proxy that delays everything in both directions.
type delayProxy struct {
	listener net.Listener
	target   string
	delay    time.Duration
	work     sync.WaitGroup
}

func newDelayProxy(t *testing.T, target string, delay time.Duration) *delayProxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &delayProxy{listener: listener, target: target, delay: delay}
	ctx, cancel := context.WithCancel(context.Background())
	w.work.Go(func() { w.accept(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		w.work.Wait()
	})
	return w
}

func (w *delayProxy) accept(ctx context.Context) {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		far, err := dialer.DialContext(ctx, "tcp", w.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		ctx, done := context.WithCancel(ctx)
		w.work.Go(func() {
			<-ctx.Done()
			_ = near.Close()
			_ = far.Close()
		})
		w.work.Go(func() { defer done(); w.carry(ctx, far, near) })
		w.work.Go(func() { defer done(); w.carry(ctx, near, far) })
	}
}

// delayedData is forwarded when it is due.
type delayedData struct {
	data []byte
	due  time.Time
}

func (w *delayProxy) carry(ctx context.Context, to, from net.Conn) {
	parcels := make(chan delayedData, 1000)
	w.work.Go(func() {
		defer close(parcels)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			select {
			case parcels <- delayedData{buffer[:n], time.Now().Add(w.delay)}:
			case <-ctx.Done():
				return
			}
		}
	})
	for p := range parcels {
		timer := time.NewTimer(time.Until(p.due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}

// A principal on another continent, over a bad line, takes a second to answer. That is slow, but it works.
func TestPrincipalMayBeFarAway(t *testing.T) {
	ca := newCA(t)
	p := newPrincipal()
	way := newDelayProxy(t, serve(t, p, ca), 150*time.Millisecond)
	material := follow(t, fixed(ca, issue(t, ca)))
	o := newFixture(way.listener.Addr().String(), material.Changed, credential(material), nil)
	began := time.Now()
	o.run(t)
	select {
	case c := <-p.calls:
		c.greet(t)
	case <-time.After(timeout):
		require.FailNow(t, "the agent does not get there", "%v", o.Connected())
	}
	if time.Since(began) < 5*time.Second { // else this machine stood still, and the attempt may have failed for that
		require.NotContains(t, o.log.String(), "Connection to principal failed", "the first attempt gets there")
	}
}
