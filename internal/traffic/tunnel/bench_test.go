package tunnel_test

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// reportCPU reports the CPU time of an operation, of the hub, the principal and the spoke together.
func reportCPU(b *testing.B) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	b.Cleanup(func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") })
}

// BenchmarkStream measures a long answer: one MiB per operation, written in chunks as an HTTP server does.
func BenchmarkStream(b *testing.B) {
	w := relaytest.Open(b)
	hub, spoke := w.Connect(b)
	const size, written = 1 << 20, 64 << 10
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	reportCPU(b)
	var work sync.WaitGroup
	work.Go(func() {
		for piece := make([]byte, written); ; {
			if _, err := spoke.Write(piece); err != nil {
				return // the hub has enough
			}
		}
	})
	_, err := io.CopyN(io.Discard, hub, int64(b.N)*size)
	require.NoError(b, err)
	require.NoError(b, hub.Close())
	work.Wait()
}

// BenchmarkRoundTrip measures a short request and a short answer.
func BenchmarkRoundTrip(b *testing.B) {
	w := relaytest.Open(b)
	hub, spoke := w.Connect(b)
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{spoke}, struct{ io.Reader }{spoke}, make([]byte, 1<<10))
	})
	said := make([]byte, 1<<10)
	b.ReportAllocs()
	b.ResetTimer()
	reportCPU(b)
	for range b.N {
		_, err := hub.Write(said)
		require.NoError(b, err)
		_, err = io.ReadFull(hub, said)
		require.NoError(b, err)
	}
	require.NoError(b, hub.Close())
	work.Wait()
}
