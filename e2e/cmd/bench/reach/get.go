package reach

import (
	"context"

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
	plain bool // whether it is not to be compressed
	least int64
}

func things() []thing {
	return []thing{
		{name: "1 kB", path: small, least: smallest},
		{name: "1 MB", path: large, least: largeSize},
		{name: "1 MB uncompressed", path: large, plain: true, least: largeSize},
	}
}

// get asks for an object of an Application and for a large one: one GET after the other, and many at a time.
func (g *ground) get(ctx context.Context, contender string) (figures.Sample, error) {
	return g.travel(ctx, contender, func(r *route) (figures.Sample, error) {
		var sample figures.Sample
		for _, t := range things() {
			own, err := g.getOne(ctx, r, t)
			if err != nil {
				return nil, err
			}
			sample = append(sample, own...)
		}
		return sample, nil
	})
}

func (g *ground) getOne(ctx context.Context, r *route, t thing) (figures.Sample, error) {
	get := func(ctx context.Context) error { return r.get(ctx, t.path, t.plain, t.least) }
	if err := get(ctx); err != nil { // which connects
		return nil, err
	}
	times, err := pace.OneByOne(ctx, g.Duration, get)
	if err != nil {
		return nil, err
	}
	rate, err := pace.AtOnce(ctx, together, g.Duration, get)
	return figures.Sample{
		figures.Duration(t.name+" p50", figures.Milliseconds, figures.Percentile(times, 50)),
		figures.Duration(t.name+" p99", figures.Milliseconds, figures.Percentile(times, 99)),
		{Name: t.name + ", 16 at once", Unit: figures.PerSecond, Value: rate},
	}, err
}
