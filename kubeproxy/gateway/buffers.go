package gateway

import "sync"

// buffers is a pool of buffers of one size.
type buffers struct{ pool sync.Pool }

func newBuffers(size int) *buffers {
	return &buffers{pool: sync.Pool{New: func() any {
		buffer := make([]byte, size)
		return &buffer
	}}}
}

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	buffer, _ := b.pool.Get().(*[]byte) // there is nothing else in it
	return *buffer
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }
