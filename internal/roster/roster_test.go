package roster_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/roster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follow returns a roster that a principal tells what there is, until the test is over.
func follow(t *testing.T, w *tunneltest.Works) *roster.Roster {
	t.Helper()
	r := roster.New(w.Hub, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, r.Ready(), "was not heard yet")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// until waits until something is true of a roster.
func until(t *testing.T, r *roster.Roster, is func() bool) {
	t.Helper()
	late := time.After(tunneltest.Patience)
	for {
		changed := r.Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(t, "it did not come true", "%v", r.All())
		}
	}
}

func TestRosterIsWhatThePrincipalSays(t *testing.T) {
	w := tunneltest.Open(t)
	r := follow(t, w)
	until(t, r, func() bool { a, ok := r.Agent("a"); return ok && a.Connected })
	require.NoError(t, r.Ready())
	known, err := r.Known("nobody")
	require.NoError(t, err)
	require.False(t, known)

	agent, instance, ok := r.Owner("a_guestbook")
	require.True(t, ok)
	require.Equal(t, "a", agent)
	require.Equal(t, "guestbook", instance)
	hub, ok := r.Hub("a", "guestbook")
	require.True(t, ok)
	require.Equal(t, "a_guestbook", hub)
	_, ok = r.Hub("nobody", "guestbook")
	require.False(t, ok)
	for _, own := range []string{"guestbook", "team-x_guestbook", "a_", "", "a", "_guestbook"} {
		_, _, ok = r.Owner(own)
		require.False(t, ok, "%q is the hub's own", own)
	}

	w.Exchange.Cluster("a", "https://a")
	until(t, r, func() bool { _, ok := r.Server("https://a"); return ok })
	w.Exchange.Cluster("a", "https://elsewhere")
	until(t, r, func() bool { _, ok := r.Server("https://elsewhere"); return ok })
	_, ok = r.Server("https://a")
	require.False(t, ok)

	w.Disconnect()
	until(t, r, func() bool { a, _ := r.Agent("a"); return !a.Connected })
	_, _, ok = r.Owner("a_guestbook")
	require.True(t, ok, "it is the agent's though that is away")
	w.Exchange.NoCluster("a")
	until(t, r, func() bool { return len(r.All()) == 1 })
	require.Equal(t, tunneltest.Echo, r.All()[0].Name)
	_, _, ok = r.Owner("a_guestbook")
	require.False(t, ok)
}

// What was known stays known while no principal can be reached.
func TestRosterOutlivesThePrincipal(t *testing.T) {
	w := tunneltest.Open(t)
	r := follow(t, w)
	until(t, r, func() bool { return len(r.All()) == 2 })
	w.Drain()
	until(t, r, func() bool { return r.Ready() != nil })
	require.ErrorContains(t, r.Ready(), "shutting down")
	_, _, ok := r.Owner("a_guestbook")
	require.True(t, ok)
	known, err := r.Known("a")
	require.NoError(t, err)
	require.True(t, known)
	_, err = r.Known("new") // which may have been created since
	require.ErrorContains(t, err, "shutting down")
}
