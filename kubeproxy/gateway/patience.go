package gateway

import (
	"io"
	"sync"
	"time"
)

// patience bounds how long an agent may take to answer. It counts only while the agent is waited for: not while the caller
// is, who may have a long body to send.
type patience struct {
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer
	over  bool // the answer came. Guarded by mu
}

// newPatience begins to count, and calls end when the limit is reached.
func newPatience(limit time.Duration, end func()) *patience {
	return &patience{limit: limit, timer: time.AfterFunc(limit, end)}
}

// pause stops to count.
func (p *patience) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
}

// resume begins to count anew.
func (p *patience) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.timer.Reset(p.limit)
	}
}

// stop stops to count for good.
func (p *patience) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.timer.Stop()
}

// patientBody is a request's body, for which the agent is not to blame.
type patientBody struct {
	io.ReadCloser
	patience *patience
}

func (b patientBody) Read(buffer []byte) (int, error) {
	b.patience.pause()
	defer b.patience.resume()
	return b.ReadCloser.Read(buffer)
}
