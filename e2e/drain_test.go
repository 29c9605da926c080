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
	other := beside.newTwin("staying").create(t)
	other.arrives(t)
	ways := r.ways(t)
	users, others := usersOf(t, ways, leaving, app), usersOf(t, ways, beside, other)
	through, past, ends := make(map[string]func(string)), make(map[string]func(string)), make(map[string]func())
	for name, w := range ways {
		through[name], ends[name] = leaving.watches(t, w.kubeproxy)
		if name != byDNS { // which goes by any of them, also by the one that leaves
			past[name], _ = beside.watches(t, w.kubeproxy)
		}
	}
	served(t, users)
	served(t, others)

	mark := leaving.agent.Mark()
	leaving.agent.Principal.Move(r.principals[2].Address) // as the Service before the principals has it
	stopping := stops(t, r.principals[1])
	saysNow(t, leaving.agent, mark, "Starting to receive events from event stream")
	r.leads(t, leaving.name, "replica-2")
	app.hub.edit(t, label("team", "blue"))
	app.spoke.becomes(t, labelled("team", "blue"))
	served(t, users)
	for way := range ways {
		through[way]("meanwhile-" + way)
		require.Empty(t, stopping, "%s: it stays for who watches through it", way)
		ends[way]()
	}
	require.NoError(t, <-stopping)
	for way, sees := range past {
		sees("after-" + way)
	}
	for _, all := range []map[string]*user{users, others} {
		served(t, all)
		for name, u := range all {
			require.Empty(t, u.failures(), name)
		}
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
	s.looks(t, proxies[1]).servedSince(t, time.Now())
}

// All principals are restarted, one after the other, as a rolling update does it. Nobody's request fails, no change is lost, and none waits for
// connections that nobody uses.
func TestRollingRestartUnderUsers(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 3, 2, "--drain-timeout=5m")
	sites := make([]*site, 4)
	for i := range sites {
		sites[i] = newSite(t, "rolled-"+strconv.Itoa(i), lab.AgentOptions{Principal: r.principals[i%len(r.principals)]}).connected(t)
		sites[i].agent.Principal.Spread(addressesOf(r.principals)...)
	}
	app := sites[0].newTwin("rolled").create(t)
	app.arrives(t)
	ways := r.ways(t)
	ways[byAddress].spread(r.principals)
	users := usersOf(t, ways, sites[0], app)
	for _, s := range sites[1:] {
		for name, w := range ways {
			users[name+" to "+s.name] = s.looks(t, w.kubeproxy)
		}
	}
	served(t, users)
	for i, p := range r.principals {
		app.hub.edit(t, label("restarted", strconv.Itoa(i)))
		require.NoError(t, <-stops(t, p))
		served(t, users)
		mark := p.Mark()
		start(t, p.Start)
		for range len(r.principals) - 1 {
			saysNow(t, p, mark, "Connected to peer")
		}
		app.spoke.becomes(t, labelled("restarted", strconv.Itoa(i)))
		served(t, users)
	}
	for name, u := range users {
		require.Empty(t, u.failures(), name)
	}
}
