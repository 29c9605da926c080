// Package crowd measures what a hub with thousands of agents takes: agents without a cluster, which one process has all of,
// and one or several real principals with a real API server.
package crowd

import (
	"context"
	"errors"
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/fleet"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/profile"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
)

// part is what the one part is called.
const part = "fleet"

// Options say how many agents there are. All but the last are required.
type Options struct {
	Lab          *lab.Lab
	Sizes        []int // how many agents there are, one measurement each
	Applications int   // of each agent; zero leaves out what is measured with them
	Most         int   // Applications in all: when that is less, only some agents have any
	Seconds      int   // that are measured while nothing happens, and while statuses change
	Principals   []int // how many principals there are, one measurement each
	PerSecond    int   // agents that come for the first time each second; zero for all at once

	PrincipalArgs []string // more flags
}

// Lab is the lab that the part is measured on: a hub.
func Lab() lab.Options { return lab.Options{Direct: true} }

// Names are the names of the parts.
func Names() []string { return []string{part, identityPart} }

// Parts are the parts, on a lab that the caller has started. Those with Applications come last: they leave them on the hub.
func Parts(o Options) []contest.Part {
	var parts []contest.Part
	add := func(measure func(*crowd, context.Context) (figures.Sample, error), c crowd) {
		parts = append(parts, contest.Part{
			Name: part, Field: []string{figures.Ours}, Once: true,
			Measure: func(ctx context.Context, _ string) (figures.Sample, error) {
				sample, err := c.measure(ctx, measure)
				for i := range sample {
					sample[i].Name = c.title() + ": " + sample[i].Name
				}
				return sample, err
			},
		})
	}
	for _, principals := range o.Principals {
		for _, size := range o.Sizes {
			if principals == 1 {
				add((*crowd).idle, crowd{Options: o, size: size})
			} else {
				parts = append(parts, replicaPart(o, size, principals))
			}
		}
	}
	for _, size := range o.Sizes {
		if o.Applications > 0 {
			add((*crowd).busy, crowd{Options: o, size: size, owners: min(size, o.Most/o.Applications)})
		}
	}
	return append(parts, identityParts(o)...)
}

// crowd is one principal and its agents.
type crowd struct {
	Options

	size   int // how many agents
	owners int // those that have Applications

	domain    *spire.Domain // that the principal has its certificate from; nil for Secrets
	principal *lab.Principal
	profiles  string        // address of the principal's
	before    profile.Usage // before any agent came
	fleet     *fleet.Fleet
	meter     *contest.Meter
}

func (c *crowd) title() string {
	if c.owners == 0 {
		return fmt.Sprintf("%d agents", c.size)
	}
	return fmt.Sprintf("%d agents, %d Applications", c.size, c.owners*c.Applications)
}

// names are those of the agents.
func (c *crowd) names() []string { return load.Names("light", c.size) }

// measure measures with a principal that has just started, and agents that are not connected yet.
func (c *crowd) measure(ctx context.Context, how func(*crowd, context.Context) (figures.Sample, error)) (sample figures.Sample, err error) {
	if err := c.furnish(ctx); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	number, err := c.Lab.Host.Port()
	if err != nil {
		return nil, err
	}
	c.profiles = port.Address(number)
	args := append([]string{fmt.Sprintf("--pprof-port=%d", number)}, c.PrincipalArgs...)
	if c.principal, err = c.Lab.NewPrincipal(ctx, lab.PrincipalOptions{Args: args}); err != nil {
		return nil, err
	}
	if err := c.principal.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.principal.Stop(context.WithoutCancel(ctx))) }()
	c.fleet, err = fleet.New(fleet.Options{Address: c.principal.Address, CA: c.Lab.CA, Names: c.names(), PerSecond: c.PerSecond})
	if err != nil {
		return nil, err
	}
	defer c.fleet.Close()
	c.meter = contest.NewMeter(c.Lab, "", []contest.Program{{Name: "principal", Process: c.principal.Process}})
	if err := c.meter.Start(); err != nil {
		return nil, err
	}
	if sample, err = how(c, ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Lab.Report())
	}
	return sample, err
}
