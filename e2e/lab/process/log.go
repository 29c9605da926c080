package process

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// tailWindow is how much of a log's end is read to find its last lines, in bytes.
const tailWindow = 64 << 10

// logFile is a file that grows, and wakes those who wait for it to.
type logFile struct {
	mu     sync.Mutex // guards all below
	file   *os.File
	size   int64         // bytes written
	start  int64         // where the present life's output begins
	change chan struct{} // closed and replaced at every change
}

func openLog(path string) (*logFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return &logFile{file: file, size: info.Size(), start: info.Size(), change: make(chan struct{})}, nil
}

// Write appends output of the program.
func (l *logFile) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.file.Write(data)
	l.size += int64(n)
	close(l.change)
	l.change = make(chan struct{})
	return n, err
}

// mark begins a new life's output.
func (l *logFile) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = l.size
}

func (l *logFile) state() (start, size int64, change <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, l.size, l.change
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// read returns the bytes from one offset to another.
func (l *logFile) read(from, to int64) ([]byte, error) {
	data := make([]byte, to-from)
	n, err := l.file.ReadAt(data, from)
	if err == io.EOF {
		err = nil
	}
	return data[:n], err
}

// Tail returns the last n lines that the program wrote, over all its lives.
func (p *Process) Tail(n int) string {
	_, size, _ := p.log.state()
	data, err := p.log.read(max(0, size-tailWindow), size)
	if err != nil {
		return fmt.Sprintf("(log of %s: %v)\n", p.options.Name, err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// Mark is a place in the log, for WaitLogFrom: where it ends now.
func (p *Process) Mark() int64 {
	_, size, _ := p.log.state()
	return size
}

// LogFrom is what the program has written since a Mark.
func (p *Process) LogFrom(mark int64) ([]byte, error) {
	_, size, _ := p.log.state()
	return p.log.read(mark, size)
}

// WaitLog returns when the program has written a line with the text since it was last started. That it ends before, or
// ctx does, is an error.
func (p *Process) WaitLog(ctx context.Context, text string) error {
	start, _, _ := p.log.state()
	return p.WaitLogFrom(ctx, start, text)
}

// WaitLogFrom is WaitLog for what was written after a Mark.
func (p *Process) WaitLogFrom(ctx context.Context, mark int64, text string) error {
	for {
		done := p.Done() // read first: the log is complete if this life has ended by now
		over := done != nil && isClosed(done)
		_, size, change := p.log.state()
		data, err := p.log.read(mark, size)
		if err != nil {
			return fmt.Errorf("log of %s: %w", p.options.Name, err)
		}
		if bytes.Contains(data, []byte(text)) {
			return nil
		}
		if over {
			return fmt.Errorf("%s ended without writing %q%s", p.options.Name, text, p.quote())
		}
		// A text may lie across two writes: go back by its length.
		mark += max(0, int64(len(data)-len(text)))
		select {
		case <-change:
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%s did not write %q: %w%s", p.options.Name, text, ctx.Err(), p.quote())
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
