package reach

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/redisbench"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// shape is a shape of the load on a Redis. Its requests are a multiple of those that one connection makes without pipelining,
// so that each shape takes about as long.
type shape struct {
	connections, pipeline, times int
}

func shapes() []shape { return []shape{{1, 1, 1}, {50, 1, 3}, {1, 16, 8}, {50, 16, 16}} }

// figure is what figures call it.
func (s shape) figure(command string) string {
	return fmt.Sprintf("%s, c %d, P %d", command, s.connections, s.pipeline)
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
	case figures.Twemproxy:
		proxy, address, err := g.newTwemproxy(ctx)
		if err != nil {
			return nil, err
		}
		defer proxy.Kill() // it has nothing to lose
		return g.load(ctx, address, nil, []contest.Program{{Name: "twemproxy", Process: proxy}})
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
			result, err := redisbench.Run(ctx, program, address, argocd.RedisPassword, redisbench.Shape{
				Connections: s.connections, Pipeline: s.pipeline, Requests: s.times * g.Requests,
			})
			if err != nil {
				return nil, err
			}
			meter.Helped(result.CPU)
			for _, command := range commands() {
				sample = append(sample, figures.Figure{Name: s.figure(command), Unit: figures.PerSecond, Value: result.Rates[command]})
			}
		}
		return sample, nil
	})
}

// newTwemproxy starts a twemproxy before the hub's Redis, and returns its address.
func (g *ground) newTwemproxy(ctx context.Context) (*process.Process, string, error) {
	program, err := toolset.Find(toolset.Twemproxy)
	if err != nil {
		return nil, "", err
	}
	h := g.Lab.Host
	name := h.Unique("hub-twemproxy")
	listen, err := h.Port()
	if err != nil {
		return nil, "", err
	}
	config, err := h.Write(filepath.Join("twemproxy", name+".yaml"), fmt.Appendf(nil, `hub:
  listen: %s
  redis: true
  redis_auth: %s
  servers:
   - %s:1
`, port.Address(listen), argocd.RedisPassword, g.Lab.Hub.ArgoCD.RedisAddress))
	if err != nil {
		return nil, "", err
	}
	p, _, err := h.Launch(ctx, host.Program{
		Name: name, Path: program, Ports: 1,
		Args: func(ports []int) []string {
			return []string{"--conf-file=" + config, "--stats-addr=127.0.0.1", "--stats-port=" + strconv.Itoa(ports[0])}
		},
		Ready: func([]int) func(context.Context) error { return process.Listens(port.Address(listen)) },
	})
	return p, port.Address(listen), err
}
