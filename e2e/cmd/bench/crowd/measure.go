package crowd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/profile"
)

// quiet is how long a principal is left alone after all have come or gone, before anybody looks at what it holds.
const quiet = 5 * time.Second

// changing is the share of the agents with Applications that have one change a second: one in so many.
const changing = 10

// idle measures agents of which nothing is wanted.
func (c *crowd) idle(ctx context.Context) (figures.Sample, error) {
	return sequence(ctx, c.connect, c.rest, c.restart, c.leave)
}

// busy measures agents with Applications.
func (c *crowd) busy(ctx context.Context) (figures.Sample, error) {
	return sequence(ctx, c.connect, c.rest, c.change, c.restart)
}

// sequence measures one thing after the other.
func sequence(ctx context.Context, all ...func(context.Context) (figures.Sample, error)) (figures.Sample, error) {
	var sample figures.Sample
	for _, measure := range all {
		own, err := measure(ctx)
		if err != nil {
			return nil, err
		}
		sample = append(sample, own...)
	}
	return sample, nil
}

// connect has all agents connect, and get their Applications.
func (c *crowd) connect(ctx context.Context) (figures.Sample, error) {
	var err error
	if c.before, err = profile.Read(ctx, c.profiles); err != nil {
		return nil, err
	}
	began := time.Now()
	c.fleet.Start(ctx)
	if err := c.fleet.WaitConnected(ctx); err != nil {
		return nil, err
	}
	sample := figures.Sample{figures.Duration("all connected", figures.Seconds, time.Since(began))}
	if c.owners == 0 {
		return sample, nil
	}
	if err := c.fleet.WaitApplications(ctx, c.owners*c.Applications); err != nil {
		return nil, err
	}
	return append(sample, figures.Duration("all have their Applications", figures.Seconds, time.Since(began))), nil
}

// rest measures what agents take of the principal that are connected, while nothing happens.
func (c *crowd) rest(ctx context.Context) (figures.Sample, error) {
	sample, err := c.held(ctx, "an agent that is connected")
	if err != nil {
		return nil, err
	}
	memory, err := c.meter.Memory()
	if err != nil {
		return nil, err
	}
	work, err := c.meter.Begin()
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, time.Duration(c.Seconds)*time.Second); err != nil {
		return nil, err
	}
	cpu, err := work.Each("agent and minute", c.size*c.Seconds)
	for i := range cpu {
		cpu[i].Value *= time.Minute.Seconds()
	}
	return slices.Concat(sample, memory, cpu), err
}

// held returns what there is of each agent, compared with before any came.
func (c *crowd) held(ctx context.Context, of string) (figures.Sample, error) {
	if err := wait(ctx, quiet); err != nil {
		return nil, err
	}
	now, err := profile.Read(ctx, c.profiles)
	if err != nil {
		return nil, err
	}
	each := float64(c.size)
	return figures.Sample{
		{Name: "goroutines of " + of, Unit: figures.Number, Value: float64(now.Goroutines-c.before.Goroutines) / each},
		{Name: "memory of " + of, Unit: figures.Kilobytes, Value: float64(now.Bytes-c.before.Bytes) / 1e3 / each},
	}, nil
}

// restart restarts the principal until all agents are back.
func (c *crowd) restart(ctx context.Context) (figures.Sample, error) {
	c.fleet.Expect()
	began := time.Now()
	if err := c.stop(ctx); err != nil {
		return nil, err
	}
	stopped := time.Since(began)
	if err := c.principal.Start(ctx); err != nil {
		return nil, err
	}
	started := time.Since(began)
	if err := c.fleet.WaitConnected(ctx); err != nil {
		return nil, err
	}
	return figures.Sample{
		figures.Duration("the principal stops", figures.Seconds, stopped),
		figures.Duration("it is ready again, since then", figures.Seconds, started),
		figures.Duration("all are back, since then", figures.Seconds, time.Since(began)),
	}, nil
}

// stop stops the principal. The lab kills one that takes long.
func (c *crowd) stop(ctx context.Context) error {
	ended := c.principal.Done()
	if err := syscall.Kill(c.principal.Pid(), syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the principal: %w", err)
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave has all agents leave.
func (c *crowd) leave(ctx context.Context) (figures.Sample, error) {
	c.fleet.Close()
	return c.held(ctx, "an agent that has left")
}

// change changes statuses until the hub shows each one's last.
func (c *crowd) change(ctx context.Context) (figures.Sample, error) {
	agents := max(1, c.owners/changing)
	changes := agents * c.Seconds
	statuses, err := load.Statuses(c.Seconds)
	if err != nil {
		return nil, err
	}
	view, stop, err := load.Watch(ctx, load.Site{Cluster: c.Lab.Hub.Cluster})
	if err != nil {
		return nil, err
	}
	defer stop()
	before, err := c.requests(ctx)
	if err != nil {
		return nil, err
	}
	work, err := c.meter.Begin()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	all, err := c.report(ctx, view, agents, statuses)
	if err != nil {
		return nil, err
	}
	var lags []time.Duration
	shown := began
	for _, r := range all {
		seen, err := r.expected.Wait(ctx)
		if err != nil {
			return nil, err
		}
		for name, at := range seen {
			lags = append(lags, at.Sub(r.at[name]))
			if at.After(shown) {
				shown = at
			}
		}
	}
	cpu, err := work.Each("status", changes)
	if err != nil {
		return nil, err
	}
	after, err := c.requests(ctx)
	return append(figures.Sample{
		{Name: "changes", Unit: figures.PerSecond, Value: float64(changes) / shown.Sub(began).Seconds()},
		figures.Duration("lag of the last p50", figures.Milliseconds, figures.Percentile(lags, 50)),
		figures.Duration("lag of the last p99", figures.Milliseconds, figures.Percentile(lags, 99)),
		{Name: "requests of the API server per change", Unit: figures.Number, Value: (after - before) / float64(changes)},
	}, cpu...), err
}

// reported is the last statuses of some Applications.
type reported struct {
	at       map[string]time.Time // when an agent was given them
	expected *load.Expectation    // that the hub shows them
}

// report gives agents one status after the other, a second apart, of one Application after the other.
func (c *crowd) report(ctx context.Context, view *load.View, agents int, statuses []load.Status) ([]reported, error) {
	var all []reported
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for turn, status := range statuses {
		r := reported{at: make(map[string]time.Time)}
		for agent := range agents {
			name := c.application(agent, turn%c.Applications)
			r.at[name] = time.Now()
			if err := c.fleet.Report(agent, name, status.JSON()); err != nil {
				return nil, err
			}
		}
		if turn >= len(statuses)-c.Applications { // nobody reports of these again
			r.expected = view.Expect(load.Showing(status), slices.Collect(maps.Keys(r.at))...)
			all = append(all, r)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
