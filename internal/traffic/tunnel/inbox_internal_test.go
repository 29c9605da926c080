package tunnel

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
)

// kept reports whether the inbox keeps data for a reader.
func kept(b *inbox, data mem.BufferSlice) bool {
	dropped, ok := b.add(data)
	return ok && dropped == 0
}

// takeAll takes everything out of an inbox.
func takeAll(b *inbox) (all []byte, ending error) {
	for {
		data, ending := b.takeFrame()
		if data == nil {
			return all, ending
		}
		all = append(all, data.Materialize()...)
		data.Free()
	}
}

func TestInboxKeepsOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := newInbox()
	var put, got []byte
	for range 2000 {
		data := make([]byte, 1+random.IntN(1+random.IntN(1+random.IntN(maxData))))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		put = append(put, data...)
		require.True(t, kept(b, split(data)))
		switch random.IntN(10) {
		case 0:
			some, _ := takeAll(b)
			got = append(got, some...)
		case 1, 2, 3:
			if data, _ := b.takeFrame(); data != nil {
				got = append(got, data.Materialize()...)
			}
		}
		if b.size > window {
			some, _ := takeAll(b)
			got = append(got, some...)
		}
	}
	b.end(io.EOF)
	b.end(io.ErrUnexpectedEOF)
	dropped, ok := b.add(mem.BufferSlice{mem.SliceBuffer("late")})
	require.True(t, ok)
	require.Equal(t, len("late"), dropped)
	some, ending := takeAll(b)
	require.Equal(t, io.EOF, ending)
	require.True(t, bytes.Equal(put, append(got, some...)))
}

// A peer may send a byte at a time. That must not cost much more memory than the bytes.
func TestInboxJoinsSmallFrames(t *testing.T) {
	b := newInbox()
	const count = 50_000
	for range count {
		b.add(mem.BufferSlice{mem.SliceBuffer("x")})
	}
	require.LessOrEqual(t, len(b.frames), count/joinSize+2)
	all, _ := takeAll(b)
	require.Len(t, all, count)
}

func TestInboxIsBounded(t *testing.T) {
	b := newInbox()
	for range inboxSize / maxData {
		require.True(t, kept(b, mem.BufferSlice{mem.SliceBuffer(make([]byte, maxData))}))
	}
	_, ok := b.add(mem.BufferSlice{mem.SliceBuffer("x")})
	require.False(t, ok)
	data, _ := b.takeFrame()
	require.Equal(t, maxData, data.Len())
	require.True(t, kept(b, mem.BufferSlice{mem.SliceBuffer("x")}))
}

// Dropped data must not look like EOF to whoever reads at that moment.
func TestClosedInboxIsNoEOF(t *testing.T) {
	b := newInbox()
	require.True(t, kept(b, mem.BufferSlice{mem.SliceBuffer("unread")}))
	b.end(io.EOF)
	require.Equal(t, len("unread"), b.close())
	data, ending := b.takeFrame()
	require.Nil(t, data)
	require.Equal(t, net.ErrClosed, ending)
	require.Zero(t, b.close())
}
