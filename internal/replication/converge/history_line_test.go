package converge_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// line connects two ends. Messages arrive late, some twice and some not, in order, until it is cut.
type line struct {
	left, right *end
	gone        chan struct{}
	once        sync.Once
	deaf        atomic.Int64 // of a hundred Puts and Deletes, how many are overlooked
}

// end is one end of a line.
type end struct {
	line *line
	out  chan converge.Message
	in   chan converge.Message
	rand *rand.Rand
	ending
}

var errCut = errors.New("the line was cut")

func newLine(seed uint64, deaf int) *line {
	l := &line{gone: make(chan struct{})}
	l.deaf.Store(int64(deaf))
	a, b := make(chan converge.Message, 4), make(chan converge.Message, 4)
	l.left = &end{line: l, out: a, in: b, rand: rand.New(rand.NewPCG(seed, 3)), ending: newEnding()}
	l.right = &end{line: l, out: b, in: a, rand: rand.New(rand.NewPCG(seed, 4)), ending: newEnding()}
	return l
}

func (l *line) isCut() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// deliverAll delivers everything from now on.
func (l *line) deliverAll() { l.deaf.Store(0) }

func (l *line) cut() { l.once.Do(func() { close(l.gone) }) }

func (e *end) Send(m converge.Message) error {
	times := 1
	if e.rand.IntN(20) == 0 {
		times = 2
	}
	switch m.(type) {
	case converge.Put, converge.Delete:
		if e.rand.Int64N(100) < e.line.deaf.Load() {
			times = 0
		}
	}
	time.Sleep(time.Duration(e.rand.IntN(3)) * time.Millisecond)
	for range times {
		select {
		case e.out <- m:
		case <-e.closed:
			return *e.err
		case <-e.line.gone:
			return errCut
		}
	}
	return nil
}

func (e *end) Deliver(handle func(converge.Message), ended func(error)) {
	deliver(e.Recv, handle, ended)
}

func (e *end) Recv() (converge.Message, error) {
	select {
	case m := <-e.in:
		return m, nil
	case <-e.closed:
		return nil, *e.err
	case <-e.line.gone:
		return nil, errCut
	}
}
