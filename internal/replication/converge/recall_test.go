package converge_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// A process that starts while the peer is away puts back what an earlier one applied, if the object proved to be that.
func TestDriftIsRestoredAfterRestart(t *testing.T) {
	for name, recall := range map[string]bool{"recalled": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newStore(1)
				o := converge.Options{
					Observer: &watcher{}, Workers: converge.NewWorkers(workers),
					Replicas: map[converge.Facet]converge.ReplicaConfig{downward: {
						Replica: s, Retain: true,
						Recall: func(k converge.Key) (converge.Object, bool) {
							obj, ok := s.Project(k)
							return obj, ok && recall && string(obj.Payload) == "v2"
						},
					}},
				}
				s.watch(func(converge.Key) {})
				s.put("k", "uid0", "v2")
				p := converge.NewPeer(o)
				s.watch(func(k converge.Key) { p.Changed(downward, k) })
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); o.Workers.Run(ctx); p.Close() }()

				p.Changed(downward, "k") // as a cache does for each object of its first list
				s.put("k", "uid0", "edited")
				time.Sleep(time.Minute)
				want := "uid0 edited"
				if recall {
					want = "uid0 v2"
				}
				require.Equal(t, want, s.content()["k"])

				s.del("k")
				time.Sleep(time.Minute)
				require.Equal(t, recall, s.content()["k"] == "uid0 v2")
				cancel()
				<-done
			})
		})
	}
}
