package reach

import (
	"context"
	"fmt"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/pace"
)

const (
	// together is how many GETs are under way at a time.
	together = 16
	// smallest is what the small object has at least, in bytes.
	smallest = 900
)

// thing is something to GET.
type thing struct {
	name  string // as figures call it
	path  string
	least int64
}

func things() []thing {
	return []thing{
		{name: "1 kB", path: small, least: smallest},
		{name: "1 MB", path: large, least: largeSize},
	}
}

// get asks for an object of an Application and for a large one: one GET after the other, and many at a time.
func (g *ground) get(ctx context.Context, contender string) (figures.Sample, error) {
	return g.travel(ctx, contender, func(meter *contest.Meter, r *route) (figures.Sample, error) {
		var sample figures.Sample
		for _, t := range things() {
			own, err := g.getOne(ctx, meter, r, t)
			if err != nil {
				return nil, err
			}
			sample = append(sample, own...)
		}
		return sample, nil
	})
}

func (g *ground) getOne(ctx context.Context, meter *contest.Meter, r *route, t thing) (figures.Sample, error) {
	get := func(ctx context.Context) error { return r.get(ctx, t.path, t.least) }
	if err := get(ctx); err != nil { // which connects
		return nil, err
	}
	work, err := meter.Begin()
	if err != nil {
		return nil, err
	}
	times, err := pace.OneByOne(ctx, g.Duration, get)
	if err != nil {
		return nil, err
	}
	single, err := work.Each("GET of "+t.name, len(times))
	if err != nil {
		return nil, err
	}
	if work, err = meter.Begin(); err != nil {
		return nil, err
	}
	count, err := pace.AtOnce(ctx, together, g.Duration, get)
	if err != nil {
		return nil, err
	}
	many, err := work.Each(fmt.Sprintf("GET of %s, %d at once", t.name, together), count)
	return slices.Concat(figures.Sample{
		figures.Duration(t.name+" p50", figures.Milliseconds, figures.Percentile(times, 50)),
		figures.Duration(t.name+" p99", figures.Milliseconds, figures.Percentile(times, 99)),
	}, single, many), err
}
