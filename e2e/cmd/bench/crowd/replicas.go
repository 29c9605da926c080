package crowd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/fleet"
)

// Who follows routes, and how many agents move each second while it does.
const (
	inUse  = 500 // agents that the UI looks at
	moving = 100 // one in so many
)

// replicaPart measures several principals, and an xds.
func replicaPart(o Options, size, principals int) contest.Part {
	r := replicas{crowd: crowd{Options: o, size: size}, count: principals}
	return contest.Part{
		Name: part, Field: []string{figures.Ours}, Once: true,
		Measure: func(ctx context.Context, _ string) (figures.Sample, error) {
			sample, err := r.measure(ctx)
			for i := range sample {
				sample[i].Name = fmt.Sprintf("%s at %d principals: %s", r.title(), principals, sample[i].Name)
			}
			return sample, err
		},
	}
}

// replicas are several principals, an xds, and agents that come to all of them in turns.
type replicas struct {
	crowd

	count      int // of principals
	principals []*lab.Principal
	xds        *lab.XDS

	mu     sync.Mutex
	hellos map[string]time.Time // when each agent connected last. Guarded by mu
}

// greeted notes when an agent has connected.
func (r *replicas) greeted(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hellos[agent] = time.Now()
}

// measure measures with principals that have just started.
func (r *replicas) measure(ctx context.Context) (sample figures.Sample, err error) {
	r.hellos = make(map[string]time.Time)
	if err := r.furnish(ctx); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	stop, err := r.start(ctx)
	defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	options := fleet.Options{Address: r.principals[0].Address, CA: r.Lab.CA, Names: r.names(), PerSecond: r.PerSecond, Greeted: r.greeted}
	for _, p := range r.principals[1:] {
		options.Others = append(options.Others, p.Address)
	}
	if r.fleet, err = fleet.New(options); err != nil {
		return nil, err
	}
	defer r.fleet.Close()
	if sample, err = sequence(ctx, r.come, r.hold, r.move, r.lose); err != nil {
		err = fmt.Errorf("%w\n%s", err, r.Lab.Report())
	}
	return sample, err
}

// start starts the programs, and returns what stops those that have started.
func (r *replicas) start(ctx context.Context) (stop func(context.Context) error, err error) {
	var started []contest.Program
	stop = func(ctx context.Context) error {
		var all error
		for _, p := range started {
			all = errors.Join(all, p.Stop(ctx))
		}
		return all
	}
	r.principals, err = r.Lab.NewPrincipals(ctx, r.count, lab.PrincipalOptions{Args: append([]string{"--drain-timeout=0"}, r.PrincipalArgs...)})
	if err != nil {
		return stop, err
	}
	addresses := make([]string, len(r.principals))
	for i, p := range r.principals {
		addresses[i] = p.Address
		if err := p.Start(ctx); err != nil {
			return stop, err
		}
		started = append(started, contest.Program{Name: fmt.Sprintf("principal %d", i+1), Process: p.Process})
	}
	if r.xds, err = r.Lab.NewXDS(ctx, addresses); err != nil {
		return stop, err
	}
	if err := r.xds.Start(ctx); err != nil {
		return stop, err
	}
	started = append(started, contest.Program{Name: "xds", Process: r.xds.Process})
	r.meter = contest.NewMeter(r.Lab, "", started)
	return stop, r.meter.Start()
}

// come has all agents connect.
func (r *replicas) come(ctx context.Context) (figures.Sample, error) {
	began := time.Now()
	work, err := r.meter.Begin()
	if err != nil {
		return nil, err
	}
	r.fleet.Start(ctx)
	if err := r.fleet.WaitConnected(ctx); err != nil {
		return nil, err
	}
	sample := figures.Sample{figures.Duration("all connected", figures.Seconds, time.Since(began))}
	cpu, err := work.Each("agent that connects", r.size)
	return append(sample, cpu...), err
}

// hold measures what agents take of the principals and the xds that are connected, while nothing happens.
func (r *replicas) hold(ctx context.Context) (figures.Sample, error) {
	if err := wait(ctx, quiet); err != nil {
		return nil, err
	}
	goroutines := 0.0
	for _, p := range r.principals {
		n, err := gauge(ctx, p.MetricsURL, "go_goroutines")
		if err != nil {
			return nil, err
		}
		goroutines += n
	}
	ofXDS, err := gauge(ctx, r.xds.MetricsURL, "go_goroutines")
	if err != nil {
		return nil, err
	}
	sample := figures.Sample{
		{Name: "goroutines of an agent, at principals", Unit: figures.Number, Value: goroutines / float64(r.size)},
		{Name: "goroutines of xds", Unit: figures.Number, Value: ofXDS},
	}
	memory, err := r.meter.Memory()
	if err != nil {
		return nil, err
	}
	work, err := r.meter.Begin()
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, time.Duration(r.Seconds)*time.Second); err != nil {
		return nil, err
	}
	cpu, err := work.Each("agent and minute", r.size*r.Seconds)
	for i := range cpu {
		cpu[i].Value *= time.Minute.Seconds()
	}
	return append(append(sample, memory...), cpu...), err
}

// lose kills a principal, and waits until its agents are at others.
func (r *replicas) lose(ctx context.Context) (figures.Sample, error) {
	began := time.Now()
	r.principals[0].Kill()
	for lost := false; ; { // that an agent is away, its dialer knows; nobody else is told
		away := r.fleet.Away()
		if lost = lost || away > 0; lost && away == 0 {
			return figures.Sample{figures.Duration("all are back after one was killed", figures.Seconds, time.Since(began))}, nil
		}
		if err := wait(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// move has agents move to another principal, and measures when those that look at them know the way.
func (r *replicas) move(ctx context.Context) (sample figures.Sample, err error) {
	names := r.names()
	for _, used := range []int{inUse, r.size} {
		if used > r.size {
			continue
		}
		follower, err := follow(ctx, r.Lab.CA, r.xds.Address, names[:used])
		if err != nil {
			return nil, err
		}
		times, err := r.moves(ctx, follower, used)
		follower.close()
		if err != nil {
			return nil, err
		}
		of := fmt.Sprintf("a route is followed, %d in use", used)
		sample = append(sample,
			figures.Duration(of+", p50", figures.Milliseconds, figures.Percentile(times, 50)), figures.Duration(of+", p99", figures.Milliseconds, figures.Percentile(times, 99)))
		if used == r.size {
			break
		}
	}
	return sample, nil
}

// moves has one in a hundred agents move each second, one after the other, and returns how long after each has connected its route came.
func (r *replicas) moves(ctx context.Context, f *follower, used int) ([]time.Duration, error) {
	perSecond := max(1, r.size/moving)
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	moved := make(map[int]time.Time)
	for agent := range min(r.size, r.Seconds*perSecond) {
		moved[agent] = time.Now()
		r.fleet.Move(agent)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var times []time.Duration
	for agent, cut := range moved {
		if agent >= used {
			continue
		}
		name := r.names()[agent]
		for {
			r.mu.Lock()
			hello := r.hellos[name]
			r.mu.Unlock()
			if came, ok := f.cameAfter(name, hello); hello.After(cut) && ok {
				times = append(times, came.Sub(hello))
				break
			}
			if err := wait(ctx, time.Millisecond); err != nil {
				return nil, fmt.Errorf("the route to agent %s, which has moved, did not come: %w", name, err)
			}
		}
	}
	return times, nil
}

// gauge reads a metric without labels.
func gauge(ctx context.Context, url, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	if families[name] == nil {
		return 0, fmt.Errorf("metrics: there is no %s", name)
	}
	return families[name].GetMetric()[0].GetGauge().GetValue(), nil
}
