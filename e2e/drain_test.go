package e2e_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// stops asks a principal to stop, and returns what says that it has.
func stops(t *testing.T, p *lab.Principal) <-chan error {
	t.Helper()
	done, ended := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	go func() {
		defer close(ended)
		done <- p.Stop(ctx)
	}()
	t.Cleanup(func() { <-ended; cancel() })
	says(t, p, "Shutting down; agents are asked to connect again")
	return done
}

// A principal that is told to stop has its agents go elsewhere, and stays for who looks at something through it. Nobody's request fails.
func TestPrincipalDrainsUnderUsers(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 3, 2, "--drain-timeout=5m")
	leaving := newSite(t, "leaving", lab.AgentOptions{Principal: r.principals[1]}).connected(t)
	beside := newSite(t, "staying", lab.AgentOptions{Principal: r.principals[2]}).connected(t)
	app := leaving.newTwin("leaving").create(t)
	app.arrives(t)
	leaving.mayBeWatched(t)
	beside.mayBeWatched(t)
	ways := r.ways(t)
	users, others := make(map[string]*user), make(map[string]*user)
	through, past, ends := make(map[string]func(string)), make(map[string]func(string)), make(map[string]func())
	for way, proxy := range ways {
		users[way], _ = uses(t, proxy, leaving.name)
		others[way], _ = uses(t, proxy, beside.name)
		through[way], ends[way] = leaving.watches(t, proxy)
		past[way], _ = beside.watches(t, proxy)
	}
	for way := range ways {
		users[way].servedSince(t, time.Time{})
	}

	mark := leaving.agent.Mark()
	leaving.agent.Principal.Move(r.principals[2].Address) // as the Service before the principals has it
	stopping := stops(t, r.principals[1])
	saysNow(t, leaving.agent, mark, "Starting to receive events from event stream")
	r.leads(t, leaving.name, "replica-2")
	app.hub.edit(t, label("team", "blue"))
	app.spoke.becomes(t, labelled("team", "blue"))
	moved := time.Now()
	for way := range ways {
		users[way].servedSince(t, moved)
		through[way]("meanwhile-" + way)
		require.Empty(t, stopping, "%s: it stays for who watches through it", way)
		ends[way]()
	}
	require.NoError(t, <-stopping)
	gone := time.Now()
	for way := range ways {
		users[way].servedSince(t, gone)
		past[way]("after-" + way)
		require.Empty(t, users[way].failures(), way)
		require.Empty(t, others[way].failures(), way)
	}
	said, err := leaving.agent.LogFrom(mark)
	require.NoError(t, err)
	require.NotContains(t, string(said), "Connection to principal failed")
}

// Who still looks at something through a principal that is told to stop keeps it no longer than --drain-timeout.
func TestDrainEndsWithItsTimeout(t *testing.T) {
	t.Parallel()
	principals, proxies := newReplicas(t, 2, "--drain-timeout=2s")
	s := newSite(t, "overdue", lab.AgentOptions{Principal: principals[0]}).connected(t)
	s.mayBeWatched(t)
	lines, _ := s.opensWatch(t, proxies[0])
	s.agent.Principal.Move(principals[1].Address)
	began := time.Now()
	require.NoError(t, <-stops(t, principals[0]))
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	says(t, principals[0], "Drain timeout is over")
	for lines.Scan() { // until it ends
	}
	other, _ := uses(t, proxies[1], s.name)
	other.servedSince(t, time.Now())
}

// All principals are restarted, one after the other, as a rolling update does it. Nobody's request fails, no change is lost, and none waits for
// connections that nobody uses.
func TestRollingRestartUnderUsers(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 3, 2, "--drain-timeout=5m")
	addresses := make([]string, len(r.principals))
	for i, p := range r.principals {
		addresses[i] = p.Address
	}
	sites := make([]*site, len(r.principals))
	for i, p := range r.principals {
		sites[i] = newSite(t, "rolled-"+strconv.Itoa(i), lab.AgentOptions{Principal: p}).connected(t)
		sites[i].agent.Principal.Spread(addresses...)
	}
	app := sites[0].newTwin("rolled").create(t)
	app.arrives(t)
	ways := r.ways(t)
	ways["address"].Principal.Spread(addresses...)
	users := make(map[string]*user)
	for way, proxy := range ways {
		for _, s := range sites {
			users[way+" to "+s.name], _ = uses(t, proxy, s.name)
		}
	}
	served := func() {
		t.Helper()
		now := time.Now()
		for _, u := range users {
			u.servedSince(t, now)
		}
	}
	served()
	for i, p := range r.principals {
		app.hub.edit(t, label("restarted", strconv.Itoa(i)))
		require.NoError(t, <-stops(t, p))
		served()
		mark := p.Mark()
		start(t, p.Start)
		for range len(r.principals) - 1 {
			saysNow(t, p, mark, "Connected to peer")
		}
		app.spoke.becomes(t, labelled("restarted", strconv.Itoa(i)))
		served()
	}
	for name, u := range users {
		require.Empty(t, u.failures(), name)
	}
}
