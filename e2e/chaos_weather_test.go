package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// mischief happens to one part of the lab, again and again or once.
type mischief struct {
	name  string
	pause time.Duration // between two times, up to twice as long
	once  bool
	happen
}

// happen does it, and returns when it is over or the context ends, with the part as it should be.
type happen func(ctx context.Context, dice *rand.Rand, note func(what string)) error

// storm lets mischief happen to all parts at the same time.
func (c *chaos) storm(ctx context.Context, t *testing.T, lasts time.Duration, all []mischief) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var parts sync.WaitGroup
	for _, m := range all {
		dice := c.dice(m.name + lasts.String())
		parts.Go(func() {
			if err := m.recur(ctx, lasts, dice, func(what string) { c.history.note(m.name, what) }); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		})
	}
	parts.Wait()
}

func (m mischief) recur(ctx context.Context, lasts time.Duration, dice *rand.Rand, note func(string)) error {
	if m.once {
		wait(ctx, lasts/10+time.Duration(dice.Int64N(int64(lasts/2))))
		return m.happen(ctx, dice, note)
	}
	for wait(ctx, time.Duration(dice.Int64N(int64(2*m.pause)))) {
		if err := m.happen(ctx, dice, note); err != nil {
			return err
		}
	}
	return nil
}

// weather is what befalls links.
func (c *chaos) weather() []mischief {
	var all []mischief
	for i, p := range c.lab.Principals {
		all = append(all, mischief{name: fmt.Sprintf("link principal %d-API server", i), pause: 8 * time.Second, happen: disturb(p.APIServer)})
	}
	for _, agent := range []string{"a", "b"} {
		a := c.lab.Agent(agent)
		all = append(all,
			mischief{name: "link " + agent + "-principal", pause: 9 * time.Second, happen: disturb(a.Principal)},
			mischief{name: "link " + agent + "-API server", pause: 8 * time.Second, happen: disturb(a.APIServer)})
	}
	return all
}

// accidents are what befalls processes.
func (c *chaos) accidents() []mischief {
	all := []mischief{{name: "API server hub", once: true, happen: killing(c.lab.Hub)}}
	for i, p := range c.lab.Principals {
		all = append(all, mischief{name: fmt.Sprintf("principal %d", i), pause: 15 * time.Second, happen: ending(p.Process)})
	}
	for _, agent := range []string{"a", "b"} {
		all = append(all,
			mischief{name: "agent " + agent, pause: 15 * time.Second, happen: ending(c.lab.Agent(agent).Process)},
			mischief{name: "API server " + agent, once: true, happen: killing(c.lab.Spoke(agent))})
	}
	return all
}

func disturb(l *link.Link) happen {
	return func(ctx context.Context, dice *rand.Rand, note func(string)) error {
		length := time.Duration(dice.Int64N(int64(6 * time.Second)))
		switch dice.IntN(4) {
		case 0:
			note("cut for " + length.String())
			l.Cut()
		case 1:
			note("refuses for " + length.String())
			l.Refuse()
		case 2:
			delay := time.Duration(dice.Int64N(int64(300 * time.Millisecond)))
			note("slower by " + delay.String() + " for " + length.String())
			l.Delay(delay)
		default:
			note("reset")
			l.Reset()
			return nil
		}
		wait(ctx, length)
		l.Restore()
		note("restored")
		return nil
	}
}

// ending kills a process or asks it to end, and starts it again after a while.
func ending(p *process.Process) happen {
	return func(ctx context.Context, dice *rand.Rand, note func(string)) error {
		whole := context.WithoutCancel(ctx)
		if dice.IntN(2) == 0 {
			note("killed")
			p.Kill()
		} else {
			note("asked to end")
			if err := p.Stop(whole); err != nil {
				return err
			}
		}
		wait(ctx, time.Duration(dice.Int64N(int64(3*time.Second))))
		whole, cancel := context.WithTimeout(whole, timeout)
		defer cancel()
		defer note("started again")
		return p.Start(whole)
	}
}

func killing(cluster *lab.Cluster) happen {
	return func(ctx context.Context, dice *rand.Rand, note func(string)) error {
		note("killed")
		cluster.APIServer.Kill()
		wait(ctx, time.Duration(dice.Int64N(int64(time.Second))))
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		defer note("started again")
		return cluster.APIServer.Start(whole)
	}
}

// heal undoes all mischief, and returns when the agents are connected.
func (c *chaos) heal(ctx context.Context, t *testing.T) {
	t.Helper()
	links := []*link.Link{c.lab.Agent("a").Principal, c.lab.Agent("a").APIServer, c.lab.Agent("b").Principal, c.lab.Agent("b").APIServer}
	for _, p := range c.lab.Principals {
		links = append(links, p.APIServer)
	}
	for _, l := range links {
		l.Restore()
	}
	c.history.note("everything", "is healed")
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		n, err := c.ofPrincipals(ctx, "argocd_principal_connected_agents")
		require.NoError(t, err)
		if n == 2 {
			c.history.note("agents", "are connected")
			return
		}
		if !wait(ctx, 100*time.Millisecond) {
			t.Fatalf("CHAOS_SEED=%d\nagents do not connect again\n%s\n%s", c.seed, c.history.lines("weather"), c.lab.Report())
		}
	}
}
