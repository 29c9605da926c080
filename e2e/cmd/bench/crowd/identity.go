package crowd

import (
	"context"
	"errors"
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/fleet"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
)

// identityPart is what the part is called that measures how agents prove who they are.
const identityPart = "identity"

// identityAgents is how many connect at once.
const identityAgents = 1000

// Trust domains of the part. The agents' has no SPIRE of its own: one process has all of them.
const (
	hubDomain   = "hub.test"
	agentDomain = "spokes.test"
)

// identityParts measure what it takes of a principal that all agents connect at once, by what proves who they are.
func identityParts(o Options) []contest.Part {
	var parts []contest.Part
	for _, by := range []struct {
		name    string
		prepare func(*crowd, context.Context) (lab.PrincipalOptions, fleet.Options, error)
	}{
		{"certificates of Secrets", (*crowd).bySecrets}, {"X.509-SVIDs", (*crowd).bySVIDs},
		{"a sidecar's header", bySidecar(false)}, {"a sidecar's header with certificates", bySidecar(true)},
	} {
		parts = append(parts, contest.Part{
			Name: identityPart, Field: []string{figures.Ours}, Once: true,
			Measure: func(ctx context.Context, _ string) (figures.Sample, error) {
				c := crowd{Options: o, size: identityAgents}
				principal, agents, err := by.prepare(&c, ctx)
				if err != nil {
					return nil, err
				}
				sample, err := c.connects(ctx, principal, agents)
				if c.domain != nil {
					err = errors.Join(err, c.domain.Stop(context.WithoutCancel(ctx)))
				}
				for i := range sample {
					sample[i].Name = fmt.Sprintf("%d agents by %s: %s", c.size, by.name, sample[i].Name)
				}
				return sample, err
			},
		})
	}
	return parts
}

func (c *crowd) bySecrets(context.Context) (lab.PrincipalOptions, fleet.Options, error) {
	return lab.PrincipalOptions{}, fleet.Options{}, nil
}

// bySidecar has the principal speak plain text, and believe what a sidecar says of each stream. The agents are that sidecar.
func bySidecar(whole bool) func(*crowd, context.Context) (lab.PrincipalOptions, fleet.Options, error) {
	return func(*crowd, context.Context) (lab.PrincipalOptions, fleet.Options, error) {
		return lab.PrincipalOptions{Args: []string{"--insecure-plaintext", "--auth=spiffe://" + agentDomain + "/agent/{agent}"}},
			fleet.Options{SPIFFEID: agentID, Sidecar: true, WithCertificate: whole}, nil
	}
}

func agentID(name string) string { return "spiffe://" + agentDomain + "/agent/" + name }

// bySVIDs has the principal get its certificate, and the CA of the agents, from SPIRE.
func (c *crowd) bySVIDs(ctx context.Context) (lab.PrincipalOptions, fleet.Options, error) {
	var err error
	c.domain, err = spire.Start(ctx, spire.Options{Host: c.Lab.Host, Tools: c.Lab.Tools, TrustDomain: hubDomain})
	if err != nil {
		return lab.PrincipalOptions{}, fleet.Options{}, err
	}
	return lab.PrincipalOptions{WorkloadAPI: c.domain.Socket, Args: []string{"--auth=spiffe://" + agentDomain + "/agent/{agent}"}},
		fleet.Options{SPIFFEID: agentID},
		c.domain.Trust(ctx, &spire.Domain{Name: agentDomain}, c.Lab.CA.PEM().Certificate)
}

// connects measures a principal to which all agents connect, again after all of them have left: tables have grown by then.
func (c *crowd) connects(ctx context.Context, principal lab.PrincipalOptions, agents fleet.Options) (sample figures.Sample, err error) {
	if err := c.furnish(ctx); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	principal.Args = append(principal.Args, c.PrincipalArgs...)
	if c.principal, err = c.Lab.NewPrincipal(ctx, principal); err != nil {
		return nil, err
	}
	if c.domain != nil {
		entry := spire.Entry{SPIFFEID: "spiffe://" + hubDomain + "/principal", Path: c.principal.Path(), FederatesWith: []*spire.Domain{{Name: agentDomain}}}
		if _, err := c.domain.Register(ctx, entry); err != nil {
			return nil, err
		}
	}
	if err := c.principal.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.principal.Stop(context.WithoutCancel(ctx))) }()
	c.meter = contest.NewMeter(c.Lab, "", []contest.Program{{Name: "principal", Process: c.principal.Process}})
	if err := c.meter.Start(); err != nil {
		return nil, err
	}
	agents.Address, agents.CA, agents.Names = c.principal.Address, c.Lab.CA, c.names()
	for range 2 {
		if sample, err = c.together(ctx, agents); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, c.Lab.Report())
		}
	}
	return sample, nil
}

// together has all agents connect at once, and then leave.
func (c *crowd) together(ctx context.Context, agents fleet.Options) (figures.Sample, error) {
	all, err := fleet.New(agents)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	work, err := c.meter.Begin()
	if err != nil {
		return nil, err
	}
	all.Start(ctx)
	if err := all.WaitConnected(ctx); err != nil {
		return nil, err
	}
	return work.Each("agent that connects", c.size)
}
