// Package reach measures how the hub reaches into a spoke: through kubeproxy and redisproxy, the principal and the agent, and
// beside that by the same client directly at the spoke's API server or at a Redis, or through relays that look at nothing.
// There is real Argo CD, since what its controller says is what the agent's policy goes by.
package reach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// spoke is the name of the one spoke, of its agent, and of the agent's namespace on the hub.
const spoke = "spoke"

// Options say how much is asked for. All but the last two are required.
type Options struct {
	Lab      *lab.Lab
	Duration time.Duration // of each loop that asks again and again
	Body     int           // bytes of a large body
	Line     int           // bytes of a line of a log, its end included
	Requests int           // that redis-benchmark makes of each command where that is slowest

	KubeproxyArgs, RedisproxyArgs []string // more flags
}

// ground is the hub and the spoke, and what there is to ask for.
type ground struct {
	Options

	pod  string // an Application's, in the namespace of the Application; empty until furnish
	turn int    // how often agents' keys were made
}

// part is one thing that is measured.
type part struct {
	name    string
	field   []string
	measure func(g *ground, ctx context.Context, contender string) (figures.Sample, error)
}

func all() []part {
	relayed := []string{figures.Floor, figures.Ours, figures.Relay}
	return []part{
		{"get", relayed, (*ground).get},
		{"caller", []string{figures.Floor, figures.Ours}, (*ground).caller},
		{"ways", []string{figures.Floor, figures.Ours}, (*ground).ways},
		{"stream", relayed, (*ground).stream},
		{"redis", relayed, (*ground).redis},
		{"agentkey", []string{figures.Floor, figures.Ours}, (*ground).agentKey},
		{"footprint", []string{figures.Ours}, (*ground).footprint},
	}
}

// Lab is the lab that the parts are measured on, with more flags for its principal and its agent.
func Lab(principalArgs, agentArgs []string) lab.Options {
	return lab.Options{
		Spokes: []string{spoke}, ArgoCD: true, Pods: true, Agents: true, Direct: true,
		Principal: lab.PrincipalOptions{Args: principalArgs}, Agent: lab.AgentOptions{Args: agentArgs},
	}
}

// Names are the names of the parts.
func Names() []string {
	var names []string
	for _, p := range all() {
		names = append(names, p.name)
	}
	return names
}

// Parts are the parts, on a lab that the caller has started.
func Parts(o Options) []contest.Part {
	g := &ground{Options: o}
	var parts []contest.Part
	for _, p := range all() {
		parts = append(parts, contest.Part{
			Name: p.name, Field: p.field,
			Measure: func(ctx context.Context, contender string) (figures.Sample, error) {
				sample, err := p.measure(g, ctx, contender)
				if err != nil {
					err = fmt.Errorf("%w\n%s", err, o.Lab.Report())
				}
				return sample, err
			},
		})
	}
	return parts
}

// metered measures with a meter of some programs, adds to the sample what they took of the machine, and stops a proxy that was
// started for it. There may be none.
func (g *ground) metered(ctx context.Context, own *lab.Proxy, programs []contest.Program,
	measure func(*contest.Meter) (figures.Sample, error),
) (sample figures.Sample, err error) {
	if own != nil { // what is stopped need not have time left of what was measured
		defer func() { err = errors.Join(err, own.Stop(context.WithoutCancel(ctx))) }()
	}
	meter := contest.NewMeter(g.Lab, spoke, programs)
	if err := meter.Start(); err != nil {
		return nil, err
	}
	if sample, err = measure(meter); err != nil {
		return nil, err
	}
	usage, err := meter.Usage()
	return append(sample, usage...), err
}

// programs are those that are in the way to the spoke, and the proxy before them.
func (g *ground) programs(name string, proxy *process.Process) []contest.Program {
	return []contest.Program{
		{Name: name, Process: proxy}, {Name: "principal", Process: g.Lab.Principal.Process},
		{Name: "agent", Process: g.Lab.Agent(spoke).Process},
	}
}

// newKubeproxy starts one that nobody else asks, so that each measurement begins with the same.
func (g *ground) newKubeproxy(ctx context.Context) (*lab.Proxy, error) {
	proxy, err := g.Lab.NewKubeproxy(ctx, lab.ProxyOptions{Args: g.KubeproxyArgs})
	if err != nil {
		return nil, err
	}
	return proxy, proxy.Start(ctx)
}

// newRedisproxy starts one that nobody else asks, so that each measurement begins with the same.
func (g *ground) newRedisproxy(ctx context.Context) (*lab.Proxy, error) {
	proxy, err := g.Lab.NewRedisproxy(ctx, lab.ProxyOptions{Args: g.RedisproxyArgs})
	if err != nil {
		return nil, err
	}
	return proxy, proxy.Start(ctx)
}
