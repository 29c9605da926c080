package gateway

import (
	"io"
	"sync"
	"time"
)

// responseTimeout limits how long an agent may take to begin its response. It does not count while the gateway waits for the
// caller, who may have a long body to send.
type responseTimeout struct {
	limit time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool // the response came. Guarded by mu
}

// newResponseTimeout starts to count, and calls onTimeout at the limit.
func newResponseTimeout(limit time.Duration, onTimeout func()) *responseTimeout {
	return &responseTimeout{limit: limit, timer: time.AfterFunc(limit, onTimeout)}
}

// pause stops the count until restart.
func (t *responseTimeout) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
}

// restart counts from zero again.
func (t *responseTimeout) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.timer.Reset(t.limit)
	}
}

// stop stops the count for good.
func (t *responseTimeout) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.timer.Stop()
}

// pausingBody is a request body. The timeout pauses while it waits for the caller.
type pausingBody struct {
	io.ReadCloser
	timeout *responseTimeout
}

func (b pausingBody) Read(buffer []byte) (int, error) {
	b.timeout.pause()
	defer b.timeout.restart()
	return b.ReadCloser.Read(buffer)
}
