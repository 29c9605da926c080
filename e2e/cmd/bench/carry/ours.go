package carry

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
)

// ours is this project's principal and agent.
type ours struct {
	principal *lab.Principal
	agent     *lab.Agent
	link      *link.Link // between them, to count what they say; nil unless bytes are counted
	lab       *lab.Lab
}

// newOurs makes a principal and an agent and starts neither.
func newOurs(ctx context.Context, o Options, counted bool) (*ours, error) {
	c := &ours{lab: o.Lab}
	var err error
	if c.principal, err = o.Lab.NewPrincipal(ctx, lab.PrincipalOptions{Args: o.PrincipalArgs}); err != nil {
		return nil, err
	}
	args := o.AgentArgs
	if counted {
		if c.link, err = o.Lab.Host.Link(ctx, "agent to principal", c.principal.Address); err != nil {
			return nil, err
		}
		args = append([]string{"--server-port=" + strconv.Itoa(c.link.Port())}, args...)
	}
	c.agent, err = o.Lab.NewAgent(ctx, lab.AgentOptions{Spoke: Spoke, Principal: c.principal, Args: args})
	return c, err
}

func (c *ours) carry(ctx context.Context, _ direction) error {
	if c.agent.Running() {
		return nil
	}
	if err := c.principal.Start(ctx); err != nil {
		return err
	}
	if err := c.agent.Start(ctx); err != nil {
		return err
	}
	return c.agent.WaitConnected(ctx)
}

// begin counts the start of the agent, and not that of the principal, which has long been there.
func (c *ours) begin(ctx context.Context) (time.Time, error) {
	if err := c.principal.Start(ctx); err != nil {
		return time.Time{}, err
	}
	began := time.Now()
	return began, c.agent.Start(ctx)
}

func (c *ours) restart(ctx context.Context) (restarted, error) {
	mark := c.agent.Mark()
	if err := c.principal.Stop(ctx); err != nil {
		return restarted{}, err
	}
	before, began := c.bytes(), time.Now()
	if err := c.principal.Start(ctx); err != nil {
		return restarted{}, err
	}
	err := c.agent.WaitLogFrom(ctx, mark, lab.ConnectedAgentLine)
	return restarted{began: began, traffic: func() int64 { return c.bytes() - before }}, err
}

func (c *ours) bytes() int64 {
	if c.link == nil {
		return 0
	}
	traffic := c.link.Traffic()
	return traffic.Sent + traffic.Received
}

func (c *ours) rest(ctx context.Context) error {
	return errors.Join(c.agent.Stop(ctx), c.principal.Stop(ctx))
}

func (c *ours) processes() []contest.Program {
	return []contest.Program{{Name: "principal", Process: c.principal.Process}, {Name: "agent", Process: c.agent.Process}}
}

func (c *ours) report() string { return c.lab.Report() }
