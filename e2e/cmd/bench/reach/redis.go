package reach

import (
	"context"
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/redisbench"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// shape is a shape of the load on a Redis. Its requests are a multiple of those that one connection makes, so that each shape
// takes about as long.
type shape struct {
	connections, times int
}

func shapes() []shape { return []shape{{1, 1}, {50, 3}} }

// figure is what figures call something of it.
func (s shape) figure(of string) string {
	return fmt.Sprintf("%s, c %d", of, s.connections)
}

// commands are those that are measured.
func commands() []string { return []string{"get", "set"} }

// redis has redis-benchmark ask for what is the hub's own: its Redis directly, and through a proxy.
func (g *ground) redis(ctx context.Context, contender string) (figures.Sample, error) {
	switch contender {
	case figures.Ours:
		proxy, err := g.newRedisproxy(ctx)
		if err != nil {
			return nil, err
		}
		return g.load(ctx, proxy.Address, proxy, []contest.Program{{Name: "redisproxy", Process: proxy.Process}})
	case figures.Relay:
		address, programs, end, err := g.newRelays(ctx, 1, g.Lab.Hub.ArgoCD.RedisAddress)
		if err != nil {
			return nil, err
		}
		defer end()
		return g.load(ctx, address, nil, programs)
	default:
		return g.load(ctx, g.Lab.Hub.ArgoCD.RedisAddress, nil, nil)
	}
}

func (g *ground) load(ctx context.Context, address string, own *lab.Proxy, programs []contest.Program) (figures.Sample, error) {
	program, err := toolset.Find(toolset.RedisBenchmark)
	if err != nil {
		return nil, err
	}
	return g.metered(ctx, own, programs, func(meter *contest.Meter) (figures.Sample, error) {
		var sample figures.Sample
		for _, s := range shapes() {
			work, err := meter.Begin()
			if err != nil {
				return nil, err
			}
			requests := s.times * g.Requests
			result, err := redisbench.Run(ctx, program, address, argocd.RedisPassword,
				redisbench.Shape{Connections: s.connections, Requests: requests})
			if err != nil {
				return nil, err
			}
			meter.Helped(result.CPU)
			each, err := work.Each(s.figure("command"), requests*len(commands()))
			if err != nil {
				return nil, err
			}
			for _, command := range commands() {
				sample = append(sample, figures.Figure{Name: s.figure(command), Unit: figures.PerSecond, Value: result.Rates[command]})
			}
			sample = append(sample, each...)
		}
		return sample, nil
	})
}
