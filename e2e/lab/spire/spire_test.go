package spire_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// watcher hands what the Workload API says to a test, and whether it says that there is no identity.
type watcher struct {
	updates chan *workloadapi.X509Context
	denied  chan struct{}
}

func (w watcher) OnX509ContextUpdate(c *workloadapi.X509Context) { w.updates <- c }

func (w watcher) OnX509ContextWatchError(err error) {
	if status.Code(err) == codes.PermissionDenied {
		select {
		case w.denied <- struct{}{}:
		default:
		}
	}
}

// next returns the next thing that comes.
func next[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// A workload is known by its path: this test is one.
func TestFederatedTrustDomains(t *testing.T) {
	repository, err := toolset.Repository()
	require.NoError(t, err)
	tools, err := toolset.Locate(repository)
	require.NoError(t, err)
	h, err := host.New(host.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var domains []*spire.Domain
	for _, name := range []string{"hub.test", "spoke.test"} {
		d, err := spire.Start(ctx, spire.Options{Host: h, Tools: tools, TrustDomain: name})
		require.NoError(t, err)
		domains = append(domains, d)
	}
	hub, spoke := domains[0], domains[1]
	require.NoError(t, spire.Federate(ctx, hub, spoke))

	watching, stop := context.WithCancel(ctx)
	w := watcher{make(chan *workloadapi.X509Context, 100), make(chan struct{}, 1)}
	ended := make(chan error, 1)
	go func() { ended <- workloadapi.WatchX509Context(watching, w, workloadapi.WithAddr(hub.Socket)) }()
	next(t, w.denied)
	own, err := os.Executable()
	require.NoError(t, err)
	entry, err := hub.Register(ctx, spire.Entry{
		SPIFFEID: "spiffe://hub.test/test", Path: own, FederatesWith: []*spire.Domain{spoke}, TTL: time.Minute, DNS: []string{"test.example"},
	})
	require.NoError(t, err)
	got := next(t, w.updates)
	require.Equal(t, "spiffe://hub.test/test", got.DefaultSVID().ID.String())
	leaf := got.DefaultSVID().Certificates[0]
	require.Equal(t, []string{"test.example"}, leaf.DNSNames)
	require.WithinDuration(t, time.Now().Add(time.Minute), leaf.NotAfter, 30*time.Second)
	require.Equal(t, 2, got.Bundles.Len())

	require.NoError(t, hub.Forget(ctx, spoke))
	for got.Bundles.Len() > 1 {
		got = next(t, w.updates)
	}
	require.NoError(t, hub.Agent.Restart(ctx))
	require.NoError(t, hub.Delete(ctx, entry))
	next(t, w.denied)
	stop()
	err = <-ended
	require.True(t, errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled, "%v", err)
}
