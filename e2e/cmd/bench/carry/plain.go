package carry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/client"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/floor"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
)

// plainWorkers is how many writes the floor has under way at a time.
const plainWorkers = 16

// plain is the floor, run as a carrier in this process.
type plain struct {
	options floor.Options
	link    *link.Link // between the loop and the hub's API server; nil unless bytes are counted

	loop     *floor.Loop // nil while it rests
	stopping context.CancelFunc
	ended    chan error // gets what the loop ended with
}

// newPlain makes the floor's carrier. It has the same rights and the same place with the API servers' priorities as ours.
func newPlain(ctx context.Context, l *lab.Lab, counted bool) (*plain, error) {
	p := &plain{}
	address := l.Hub.Address
	if counted {
		var err error
		if p.link, err = l.Host.Link(ctx, "floor to hub", address); err != nil {
			return nil, err
		}
		address = p.link.Address()
	}
	hub, err := client.For(l.Hub, lab.PrincipalUser, address)
	if err != nil {
		return nil, err
	}
	spoke, err := client.For(l.Spoke(Spoke), lab.AgentUser, l.Spoke(Spoke).Address)
	if err != nil {
		return nil, err
	}
	p.options = floor.Options{
		Hub: floor.Side{Config: hub, Namespace: Spoke}, Spoke: floor.Side{Config: spoke, Namespace: lab.Namespace},
		Workers: plainWorkers,
	}
	return p, nil
}

func (p *plain) carry(ctx context.Context, d direction) error {
	if err := p.rest(ctx); err != nil {
		return err
	}
	construct := floor.NewDown
	if d == up {
		construct = floor.NewUp
	}
	loop, err := construct(p.options)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(running) }() // rest waits for it
	p.loop, p.stopping, p.ended = loop, cancel, ended
	select {
	case <-loop.Synced():
		return nil
	case err := <-ended:
		ended <- nil // rest has nothing left to tell
		return fmt.Errorf("floor: %w", errors.Join(err, ctx.Err()))
	}
}

// begin counts from before the first read: the floor is a program that has just started, too.
func (p *plain) begin(ctx context.Context) (time.Time, error) {
	began := time.Now()
	return began, floor.Once(ctx, p.options, []floor.Batch{
		{Resource: load.Projects("").Resource, Namespace: lab.Namespace},
		{Resource: load.Credentials("").Resource, Namespace: lab.Namespace, Selector: load.RepositorySelector},
		{Resource: argocd.All("").Resource, Namespace: Spoke},
	})
}

func (p *plain) restart(ctx context.Context) (restarted, error) {
	if err := p.rest(ctx); err != nil {
		return restarted{}, err
	}
	before, began := p.bytes(), time.Now()
	err := p.carry(ctx, down)
	return restarted{began: began, traffic: func() int64 { return p.bytes() - before }}, err
}

func (p *plain) bytes() int64 {
	if p.link == nil {
		return 0
	}
	traffic := p.link.Traffic()
	return traffic.Sent + traffic.Received
}

func (p *plain) rest(context.Context) error {
	if p.loop == nil {
		return nil
	}
	p.stopping()
	p.loop = nil
	return <-p.ended
}

// report tells of the last write that did not succeed at once.
func (p *plain) report() string {
	if p.loop == nil || p.loop.Err() == nil {
		return ""
	}
	return "last error of the floor: " + p.loop.Err().Error()
}

// processes are none: its memory would be that of the benchmark.
func (p *plain) processes() []contest.Program { return nil }
