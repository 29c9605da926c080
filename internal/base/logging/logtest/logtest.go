// Package logtest has a log that tests can read.
package logtest

import (
	"strings"
	"sync"
)

// Log is what was written, for a slog.Handler to write to. The zero Log is empty. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
