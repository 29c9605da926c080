package apihttp

import "sync"

// BufferPool is an httputil.BufferPool of buffers of one size.
type BufferPool struct{ pool sync.Pool }

// NewBufferPool returns a pool of buffers of that many bytes.
func NewBufferPool(size int) *BufferPool {
	return &BufferPool{sync.Pool{New: func() any {
		buffer := make([]byte, size)
		return &buffer
	}}}
}

// Get returns a buffer with any content.
func (p *BufferPool) Get() []byte {
	buffer, _ := p.pool.Get().(*[]byte) // the pool holds nothing else
	return *buffer
}

// Put takes back a buffer that Get returned.
func (p *BufferPool) Put(buffer []byte) { p.pool.Put(&buffer) }
