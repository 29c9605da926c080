package tunnel

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// inboxSize is the most that a peer may have sent and we not have read, in bytes: its window, which one frame may exceed.
const inboxSize = mostWindow + maxData

// inbox is what one end of a conversation has received and nobody has read yet. It always takes more at once, so that what
// the peer says of the flow is heard even while nobody reads; how much more is for the peer to mind.
type inbox struct {
	changed chan struct{} // has a value after a change. Of capacity one

	mu     sync.Mutex
	frames []mem.BufferSlice // Guarded by mu
	space  []mem.BufferSlice // that they are in, from its beginning or further on. Guarded by mu
	size   int               // of them, in bytes. Guarded by mu
	shut   bool              // nobody will read them. Guarded by mu
	ending error             // why nothing comes after them: io.EOF, or how the stream was lost. Guarded by mu
}

func newInbox() *inbox { return &inbox{changed: make(chan struct{}, 1)} }

// add adds a frame's data, which are the inbox's then, and reports whether the peer may have sent as much. What comes after
// the end is dropped.
func (b *inbox) add(data mem.BufferSlice) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := data.Len()
	switch {
	case size == 0:
		return true
	case b.shut || b.ending != nil:
		data.Free()
		return true
	case b.size+size > inboxSize:
		data.Free()
		return false
	}
	if b.frames = append(b.frames, data); len(b.frames) == 1 {
		b.space = b.frames
	}
	b.size += size
	b.signal()
	return true
}

// end says why nothing more comes. Only the first reason counts.
func (b *inbox) end(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending == nil {
		b.ending = why
	}
	b.signal()
}

// take returns what was added first, which is the caller's to free. Once there is nothing left, and nothing comes, it returns
// why. There may be nothing yet: changed says when to ask again.
func (b *inbox) take() (data mem.BufferSlice, ending error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frames) == 0 {
		return nil, b.ending
	}
	data = b.frames[0]
	b.frames[0] = nil
	if b.frames = b.frames[1:]; len(b.frames) == 0 {
		b.frames = b.space[:0]
	}
	b.size -= data.Len()
	return data, nil
}

// ended returns why nothing more comes, nil if something may.
func (b *inbox) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ending
}

// close drops what is in it, and what will be added.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, data := range b.frames {
		data.Free()
	}
	b.frames, b.size, b.shut = nil, 0, true
}

func (b *inbox) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}
