// Package buffers keeps buffers for those who copy much.
package buffers

import "sync"

// Pool keeps buffers of one size. It is what httputil.ReverseProxy calls a BufferPool.
type Pool struct{ pool sync.Pool }

// NewPool returns a pool of buffers of so many bytes.
func NewPool(size int) *Pool {
	return &Pool{sync.Pool{New: func() any {
		buffer := make([]byte, size)
		return &buffer
	}}}
}

// Get returns a buffer, which is the caller's until Put, with anything in it.
func (p *Pool) Get() []byte {
	buffer, _ := p.pool.Get().(*[]byte) // there is nothing else in it
	return *buffer
}

// Put gives a buffer of Get's back.
func (p *Pool) Put(buffer []byte) { p.pool.Put(&buffer) }
