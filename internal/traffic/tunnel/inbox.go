package tunnel

import (
	"net"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// inboxSize is the most that a peer may have sent and we not have read, in bytes: its window, which one frame may exceed.
const inboxSize = window + maxData

// joined is how large a buffer is that small frames are put together in, in bytes.
const joined = 4 << 10

// inbox is what one end of a conversation has received and nobody has read yet. It always takes more at once, so that what
// the peer says of the flow is heard even while nobody reads; how much more is for the peer to mind.
type inbox struct {
	changed signal.Signal

	mu     sync.Mutex
	frames []mem.BufferSlice // Guarded by mu
	tail   []byte            // the last one, if others may be put into it. Guarded by mu
	size   int               // of them all, in bytes. Guarded by mu
	shut   bool              // nobody will read them. Guarded by mu
	ending error             // why nothing comes after them: io.EOF, or how the stream was lost. Guarded by mu
}

func newInbox() *inbox { return &inbox{changed: signal.New()} }

// add adds a frame's data, which are the inbox's then. It returns how much of them nobody will read, and whether the peer may
// have sent as much.
func (b *inbox) add(data mem.BufferSlice) (dropped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := data.Len()
	switch {
	case size == 0:
		return 0, true
	case b.shut || b.ending != nil:
		data.Free()
		return size, true
	case b.size+size > inboxSize:
		data.Free()
		return size, false
	}
	b.put(data, size)
	b.size += size
	b.changed.Give()
	return 0, true
}

// put puts data behind what is there. Frames that somebody already waits for are kept as they came; of those that wait, the
// small ones are put together: each takes hundreds of bytes to keep, and there may be as many as bytes. It is called with mu
// held.
func (b *inbox) put(data mem.BufferSlice, size int) {
	last := len(b.frames) - 1
	switch {
	case last < 0, size > joined/2:
		b.frames, b.tail = append(b.frames, data), nil
		return
	case size > cap(b.tail)-len(b.tail):
		b.frames, b.tail = append(b.frames, nil), make([]byte, 0, joined)
		last++
	}
	used := len(b.tail)
	b.tail = b.tail[:used+size]
	data.CopyTo(b.tail[used:])
	data.Free()
	b.frames[last] = mem.BufferSlice{mem.SliceBuffer(b.tail)}
}

// end says why nothing more comes. Only the first reason counts.
func (b *inbox) end(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending == nil {
		b.ending = why
	}
	b.changed.Give()
}

// take returns what was added first, which is the caller's to free. Once there is nothing left, and nothing comes, it returns
// why; net.ErrClosed once it is closed. There may be nothing yet: changed says when to ask again.
func (b *inbox) take() (data mem.BufferSlice, ending error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return nil, net.ErrClosed // what was dropped is not to look like an end
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

// close drops what is in it, and what will be added. It returns how much it dropped.
func (b *inbox) close() (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, data := range b.frames {
		data.Free()
	}
	dropped = b.size
	b.frames, b.tail, b.size, b.shut = nil, nil, 0, true
	return dropped
}
