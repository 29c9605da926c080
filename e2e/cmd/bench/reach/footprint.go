package reach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// idle is how long a program is left alone before it is looked at: what it needed to start is to be gone.
const idle = 3 * time.Second

// footprint is what the proxies take when they are connected and nobody asks for anything.
func (g *ground) footprint(ctx context.Context, _ string) (figures.Sample, error) {
	var sample figures.Sample
	for _, p := range []struct {
		name  string
		start func(context.Context) (*lab.Proxy, error)
	}{{"kubeproxy", g.newKubeproxy}, {"redisproxy", g.newRedisproxy}} {
		own, err := g.footprintOf(ctx, p.name, p.start)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		sample = append(sample, own...)
	}
	return sample, nil
}

func (g *ground) footprintOf(ctx context.Context, name string, start func(context.Context) (*lab.Proxy, error)) (sample figures.Sample, err error) {
	proxy, err := start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, proxy.Stop(context.WithoutCancel(ctx))) }()
	file, err := os.Stat(proxy.Path())
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(idle)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	memory, err := contest.NewMeter(g.Lab, spoke, []contest.Program{{Name: name, Process: proxy.Process}}).Memory()
	return append(figures.Sample{{Name: name + " on disk", Unit: figures.Megabytes, Value: float64(file.Size()) / 1e6}}, memory...), err
}
