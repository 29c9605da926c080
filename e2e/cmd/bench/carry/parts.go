package carry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// quiet is how long after a reconnect bytes are still counted as its.
const quiet = 3 * time.Second

// part is one thing that is measured.
type part struct {
	name    string
	counted bool // whether bytes between the clusters are
	once    bool // whether it takes so long, and is of so many, that once is enough
	measure func(context.Context, *stage) (figures.Sample, error)
}

func all() []part {
	return []part{
		{name: "propagate", measure: propagate},
		{name: "bulk", measure: bulk},
		{name: "first-sync", measure: firstSync},
		{name: "status", once: true, measure: status},
		{name: "reconnect", counted: true, measure: reconnect},
	}
}

// propagate creates Applications on the hub, one after the other has been seen on the spoke.
func propagate(ctx context.Context, s *stage) (figures.Sample, error) {
	if err := s.carrier.carry(ctx, down); err != nil {
		return nil, err
	}
	view, stop, err := load.Watch(ctx, s.spoke)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.meter.Start(); err != nil {
		return nil, err
	}
	work, err := s.meter.Begin()
	if err != nil {
		return nil, err
	}
	var times []time.Duration
	for _, name := range load.Names("propagate", s.options.Samples) {
		expected := view.Expect(load.Present, name)
		began := time.Now()
		if err := s.hub.Create(ctx, Spoke, name); err != nil {
			return nil, err
		}
		seen, err := expected.Wait(ctx)
		if err != nil {
			return nil, err
		}
		times = append(times, seen[name].Sub(began))
	}
	each, err := work.Each("change", len(times))
	if err != nil {
		return nil, err
	}
	return s.withUsage(figures.Sample{
		figures.Duration("p50", figures.Milliseconds, figures.Percentile(times, 50)),
		figures.Duration("p99", figures.Milliseconds, figures.Percentile(times, 99)),
	}, each)
}

// bulk creates many Applications on the hub until all are on the spoke, and deletes them until none is.
func bulk(ctx context.Context, s *stage) (figures.Sample, error) {
	if err := s.carrier.carry(ctx, down); err != nil {
		return nil, err
	}
	view, stop, err := load.Watch(ctx, s.spoke)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.meter.Start(); err != nil {
		return nil, err
	}
	work, err := s.meter.Begin()
	if err != nil {
		return nil, err
	}
	names := load.Names("bulk", s.options.Applications)
	began, expected := time.Now(), view.Expect(load.Present, names...)
	if err := s.hub.Create(ctx, Spoke, names...); err != nil {
		return nil, err
	}
	seen, err := expected.Wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("creates: %w", err)
	}
	created := latest(seen).Sub(began)
	memory, err := s.meter.Memory() // now, with the Applications in place
	if err != nil {
		return nil, err
	}
	began, expected = time.Now(), view.Expect(load.Absent, names...)
	if err := s.hub.Delete(ctx, names...); err != nil {
		return nil, err
	}
	if seen, err = expected.Wait(ctx); err != nil {
		return nil, fmt.Errorf("deletes: %w", err)
	}
	deleted := latest(seen).Sub(began)
	each, err := work.Each("change", 2*len(names))
	if err != nil {
		return nil, err
	}
	cpu, err := s.meter.CPU()
	return slices.Concat(figures.Sample{
		figures.Duration("creates", figures.Seconds, created),
		figures.Duration("deletes", figures.Seconds, deleted),
	}, each, memory, cpu), err
}

// What is on the hub beside the Applications in first-sync.
const (
	firstProjects     = 20
	firstRepositories = 50
)

// firstSync has an agent that was never here get all that the hub has for it.
func firstSync(ctx context.Context, s *stage) (_ figures.Sample, err error) {
	furniture := load.Furniture{
		Projects: load.Names("team", firstProjects), Repositories: load.Names("repository", firstRepositories),
	}
	hub := load.Site{Cluster: s.hub.Cluster, Namespace: lab.Namespace}
	names := load.Names("first", s.options.Applications)
	if err := errors.Join(hub.Furnish(ctx, furniture, Spoke), s.hub.Create(ctx, Spoke, names...)); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	defer func() {
		// A carrier that does not rest would put back on the spoke what is stripped there. Clear strips nothing, so this is done
		// also when the measurement took too long.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, s.carrier.rest(ctx), hub.Strip(ctx, furniture), s.spoke.Strip(ctx, furniture))
	}()
	view, stop, err := load.Watch(ctx, s.spoke)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.meter.Start(); err != nil {
		return nil, err
	}
	began, err := s.carrier.begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := view.Expect(load.Present, names...).Wait(ctx); err != nil {
		return nil, err
	}
	if err := s.spoke.WaitFurnished(ctx, furniture); err != nil {
		return nil, err
	}
	return s.withUsage(figures.Sample{figures.Duration("all there", figures.Seconds, time.Since(began))})
}

// status changes the statuses of many Applications on the spoke until the hub shows each one's last.
func status(ctx context.Context, s *stage) (figures.Sample, error) {
	statuses, err := load.Statuses(s.options.Changes + 1)
	if err != nil {
		return nil, err
	}
	names := load.Names("status", s.options.Applications)
	if err := s.createWithStatus(ctx, statuses[0], names...); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	view, stop, err := load.Watch(ctx, s.hub)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.meter.Start(); err != nil {
		return nil, err
	}
	work, err := s.meter.Begin()
	if err != nil {
		return nil, err
	}
	expected := view.Expect(load.Showing(statuses[s.options.Changes]), names...)
	began := time.Now()
	asked, err := s.spoke.WriteStatuses(ctx, statuses[1:], names...)
	if err != nil {
		return nil, err
	}
	written := time.Since(began)
	shown, err := expected.Wait(ctx)
	if err != nil {
		return nil, err
	}
	var lags []time.Duration
	for name, at := range shown {
		lags = append(lags, at.Sub(asked[name]))
	}
	changes := s.options.Changes * s.options.Applications
	each, err := work.Each("status", changes)
	if err != nil {
		return nil, err
	}
	return s.withUsage(figures.Sample{
		{Name: "changes", Unit: figures.PerSecond, Value: float64(changes) / latest(shown).Sub(began).Seconds()},
		{Name: "changes written on the spoke", Unit: figures.PerSecond, Value: float64(changes) / written.Seconds()},
		figures.Duration("lag of the last p50", figures.Milliseconds, figures.Percentile(lags, 50)),
		figures.Duration("lag of the last p99", figures.Milliseconds, figures.Percentile(lags, 99)),
	}, each)
}

// reconnect restarts the hub's side of the carrier when nothing has changed, and waits for the next change to arrive.
func reconnect(ctx context.Context, s *stage) (figures.Sample, error) {
	statuses, err := load.Statuses(1)
	if err != nil {
		return nil, err
	}
	if err := s.createWithStatus(ctx, statuses[0], load.Names("reconnect", s.options.Applications)...); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	view, stop, err := load.Watch(ctx, s.spoke)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.meter.Start(); err != nil {
		return nil, err
	}
	again, err := s.carrier.restart(ctx)
	if err != nil {
		return nil, err
	}
	connected := time.Since(again.began)
	expected := view.Expect(load.Present, "next")
	if err := s.hub.Create(ctx, Spoke, "next"); err != nil {
		return nil, err
	}
	seen, err := expected.Wait(ctx)
	if err != nil {
		return nil, err
	}
	moved, err := bytesAfterPause(ctx, again.traffic)
	if err != nil {
		return nil, err
	}
	return s.withUsage(figures.Sample{
		figures.Duration("next change", figures.Seconds, seen["next"].Sub(again.began)),
		figures.Duration("connected", figures.Seconds, connected),
		{Name: "moved", Unit: figures.Kilobytes, Value: float64(moved) / 1e3},
	})
}

// bytesAfterPause returns the bytes moved after a pause in which an unfinished resume would go on.
func bytesAfterPause(ctx context.Context, traffic func() int64) (int64, error) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
		return traffic(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// withUsage puts samples together and adds what the measurement took of the machine.
func (s *stage) withUsage(samples ...figures.Sample) (figures.Sample, error) {
	usage, err := s.meter.Usage()
	return slices.Concat(append(samples, usage)...), err
}

func latest(times map[string]time.Time) time.Time {
	var last time.Time
	for _, at := range times {
		if at.After(last) {
			last = at
		}
	}
	return last
}
