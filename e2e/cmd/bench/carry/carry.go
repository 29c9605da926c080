// Package carry measures how Applications and their statuses get from one cluster to the other: by this project's principal
// and agent, and by the floor, which does the same work and no more. Both of them work on a lab without an application
// controller, whose writes would be measured too: the benchmark writes the statuses that it would.
package carry

import (
	"context"
	"errors"
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// Spoke is the name of the one spoke, of its agent, and of the agent's namespace on the hub.
const Spoke = "spoke"

// Options say how much is carried. All but the last two are required.
type Options struct {
	Lab          *lab.Lab
	Applications int // in bulk, first-sync, status and reconnect
	Samples      int // Applications in propagate
	Changes      int // of each status

	PrincipalArgs, AgentArgs []string // more flags
}

// ground is the hub and the spoke.
type ground struct {
	options    Options
	hub, spoke load.Site
}

// Lab is the lab that the parts are measured on.
func Lab() lab.Options { return lab.Options{Spokes: []string{Spoke}, Direct: true} }

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
	g := &ground{
		options: o,
		hub:     load.Site{Cluster: o.Lab.Hub.Cluster, Namespace: Spoke},
		spoke:   load.Site{Cluster: o.Lab.Spoke(Spoke).Cluster, Namespace: lab.Namespace},
	}
	var parts []contest.Part
	for _, p := range all() {
		parts = append(parts, contest.Part{
			Name: p.name, Field: []string{figures.Floor, figures.Ours}, Once: p.once,
			Measure: func(ctx context.Context, contender string) (figures.Sample, error) {
				return g.measure(ctx, p, contender)
			},
		})
	}
	return parts
}

// measure measures a part with a new carrier, on an empty hub and spoke, and stops the carrier.
func (g *ground) measure(ctx context.Context, p part, contender string) (figures.Sample, error) {
	if err := errors.Join(g.hub.Clear(ctx), g.spoke.Clear(ctx)); err != nil {
		return nil, err
	}
	c, err := g.carrier(ctx, contender, p.counted)
	if err != nil {
		return nil, err
	}
	sample, err := p.measure(ctx, &stage{ground: g, carrier: c, meter: contest.NewMeter(g.options.Lab, Spoke, c.processes())})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, c.report())
	}
	// What is stopped need not have time left of what was measured.
	return sample, errors.Join(err, c.rest(context.WithoutCancel(ctx)))
}

// carrier makes a contender's carrier. Whether bytes between the clusters are counted is said now: it takes a link, and a
// link takes time.
func (g *ground) carrier(ctx context.Context, contender string, counted bool) (carrier, error) {
	if contender == figures.Floor {
		return newPlain(ctx, g.options.Lab, counted)
	}
	return newOurs(ctx, g.options, counted)
}
