package converge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// benchmarked is a pair whose test can wait until the source has all acks.
type benchmarked struct {
	*pair

	acked sync.WaitGroup
}

func newBenchmarked(b *testing.B, n int) *benchmarked {
	b.Helper()
	p := &benchmarked{pair: newPair(b, pairOptions{})}
	p.source.fill(n)
	p.source.reportResult = func(context.Context, converge.Key, converge.Result) error {
		p.acked.Done()
		return nil
	}
	return p
}

const benchKeys = 10_000

// BenchmarkFill brings 10,000 objects to a replica that has none.
func BenchmarkFill(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		p := newBenchmarked(b, benchKeys)
		p.acked.Add(benchKeys)
		p.connect()
		p.acked.Wait()
		p.disconnect()
	}
	b.ReportMetric(float64(benchKeys*b.N)/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkChange changes each of 10,000 objects once.
func BenchmarkChange(b *testing.B) {
	p := newBenchmarked(b, benchKeys)
	p.acked.Add(benchKeys)
	p.connect()
	p.acked.Wait()
	b.ReportAllocs()
	round := 0
	for b.Loop() {
		round++
		p.acked.Add(benchKeys)
		for i := range benchKeys {
			p.source.set(key(i), object("uid", fmt.Sprint(round, i)))
		}
		p.acked.Wait()
	}
	b.ReportMetric(float64(benchKeys*b.N)/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkReconnect connects two sides that hold the same 10,000 objects, until the next change arrives.
func BenchmarkReconnect(b *testing.B) {
	p := newBenchmarked(b, benchKeys)
	p.replica.fill(benchKeys)
	b.ReportAllocs()
	round := 0
	for b.Loop() {
		round++
		p.acked.Add(1)
		p.source.set(key(0), object("uid", fmt.Sprint(round)))
		p.connect()
		p.acked.Wait()
		p.disconnect()
	}
}

// BenchmarkDrift has all of 10,000 objects edited at once, and put back.
func BenchmarkDrift(b *testing.B) {
	for b.Loop() {
		p := newPair(b, pairOptions{retain: true})
		p.source.fill(benchKeys)
		w := &repairObserver{recordingObserver: p.observer}
		p.right = runPeer(b, converge.Options{
			Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: p.replica, Retain: true}}, Observer: w,
		})
		var acked sync.WaitGroup
		acked.Add(benchKeys)
		p.source.reportResult = func(context.Context, converge.Key, converge.Result) error { acked.Done(); return nil }
		p.connect()
		acked.Wait()
		w.repaired.Add(benchKeys)
		for i := range benchKeys {
			p.replica.set(key(i), object("uid", "edited"))
		}
		w.repaired.Wait()
		p.disconnect()
	}
}

type repairObserver struct {
	*recordingObserver

	repaired sync.WaitGroup
}

func (w *repairObserver) Repaired(converge.Facet, converge.Key, converge.Result) { w.repaired.Done() }
