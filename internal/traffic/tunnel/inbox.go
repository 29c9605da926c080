package tunnel

import (
	"net"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// inboxSize is the most that a peer may have sent and this end not have read, in bytes: its window, which one frame may
// exceed.
const inboxSize = window + maxData

// joinSize is how large a buffer is that small frames are joined in, in bytes.
const joinSize = 4 << 10

// inbox is what one end has received and nobody has read yet. It never makes the receiver wait, so that acknowledgements are
// received even while nobody reads; the peer must keep to its window.
type inbox struct {
	changed signal.Signal

	mu     sync.Mutex
	frames []mem.BufferSlice // Guarded by mu
	tail   []byte            // the last one, if others may be joined to it. Guarded by mu
	size   int               // of them all, in bytes. Guarded by mu
	closed bool              // nobody will read them. Guarded by mu
	ending error             // why nothing comes after them: io.EOF, or how the stream was lost. Guarded by mu
}

func newInbox() *inbox { return &inbox{changed: signal.New()} }

// add adds a frame's data, and owns them then. It returns how many bytes of them nobody will read, and whether the peer kept
// to its window.
func (b *inbox) add(data mem.BufferSlice) (dropped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := data.Len()
	switch {
	case size == 0:
		return 0, true
	case b.closed || b.ending != nil:
		data.Free()
		return size, true
	case b.size+size > inboxSize:
		data.Free()
		return size, false
	}
	b.appendFrame(data, size)
	b.size += size
	b.changed.Give()
	return 0, true
}

// appendFrame appends data. It joins small frames when others wait before them: each costs hundreds of bytes, and a peer may
// send one for each byte. mu is held.
func (b *inbox) appendFrame(data mem.BufferSlice, size int) {
	last := len(b.frames) - 1
	switch {
	case last < 0, size > joinSize/2:
		b.frames, b.tail = append(b.frames, data), nil
		return
	case size > cap(b.tail)-len(b.tail):
		b.frames, b.tail = append(b.frames, nil), make([]byte, 0, joinSize)
		last++
	}
	used := len(b.tail)
	b.tail = b.tail[:used+size]
	data.CopyTo(b.tail[used:])
	data.Free()
	b.frames[last] = mem.BufferSlice{mem.SliceBuffer(b.tail)}
}

// end sets why nothing more comes. Only the first reason counts.
func (b *inbox) end(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending == nil {
		b.ending = why
	}
	b.changed.Give()
}

// takeFrame returns what was added first, which the caller frees. When nothing is left and nothing comes it returns why;
// net.ErrClosed once it is closed. There may be nothing yet: changed says when to ask again.
func (b *inbox) takeFrame() (data mem.BufferSlice, ending error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, net.ErrClosed // not EOF: something may have been dropped
	}
	if len(b.frames) == 0 {
		return nil, b.ending
	}
	data = b.frames[0]
	b.frames[0] = nil
	if b.frames = b.frames[1:]; len(b.frames) == 0 {
		b.frames, b.tail = nil, nil
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

// close drops what is in it, and what will be added. It returns how many bytes it dropped.
func (b *inbox) close() (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, data := range b.frames {
		data.Free()
	}
	dropped = b.size
	b.frames, b.tail, b.size, b.closed = nil, nil, 0, true
	return dropped
}
