// Package doctor walks every hop between a hub and an agent's cluster, from both sides as far as each can be asked, and tells which work.
// The hops are in the order in which a connection needs them: the first that fails is the one to mend.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
)

// maxLag is for how long an object may wait before the resync counts as stuck.
const maxLag = time.Minute

// Options say whom to examine, and where what is.
type Options struct {
	Agent string
	// Hub and Spoke are the clusters; one of them may be nil.
	Hub, Spoke *cluster.Client
	// Presence asks the principals which agents are connected.
	Presence func() principals.Presence
	// PrincipalAddress is the principal's host:port as the agent dials it; empty if it is not to be dialled.
	PrincipalAddress string
	// ResourceProxy is kubeproxy's host:port as it is reached from here, if that is another than Argo CD's.
	ResourceProxy string
	// RedisProxy is redisproxy's host:port; empty if it is not to be asked.
	RedisProxy string
	// ByDestination says that Applications are mapped by their destinations, where no ConfigMap does.
	ByDestination bool
	// PrincipalUser and AgentUser are the users by which the API servers know the programs; those of their ServiceAccounts if empty.
	PrincipalUser, AgentUser string
}

// Examine walks the hops, and calls each with every check that was made, so that a person sees how far it is.
func Examine(ctx context.Context, o Options, each func(checks.Check)) []checks.Check {
	var all []checks.Check
	tell := func(made ...checks.Check) {
		for _, c := range made {
			each(c)
		}
		all = append(all, made...)
	}
	if o.Spoke != nil {
		tell(o.reach(ctx, o.Spoke))
		tell(o.rights(ctx, o.Spoke, agentRights)...)
	}
	if o.Hub != nil {
		tell(o.reach(ctx, o.Hub))
		tell(o.rights(ctx, o.Hub, principalRights)...)
	}
	tell(o.identity(ctx)...)
	tell(o.dial(ctx)...)
	if o.Hub != nil {
		tell(o.session(ctx)...)
		tell(o.throughTheTunnel(ctx)...)
	}
	return all
}

// reach looks whether a cluster's API server can be asked.
func (o Options) reach(ctx context.Context, c *cluster.Client) checks.Check {
	version, err := c.Version(ctx)
	return checks.Err("API server of "+c.String(), version, err)
}

// identity looks at what the hub knows of the agent, and what the agent has on its cluster.
func (o Options) identity(ctx context.Context) []checks.Check {
	if o.Hub == nil {
		return []checks.Check{o.certificate(ctx)}
	}
	about, err := agents.Inspect(ctx, o.Hub, o.Spoke, o.Agent, func() principals.Presence { return principals.Presence{Unknown: errNotAsked} })
	if err != nil {
		return []checks.Check{checks.Err("identity", "", err)}
	}
	var onHub, onSpoke []string
	for _, problem := range about.Problems {
		switch {
		case about.HeldDeletions > 0 && strings.Contains(problem, "argocd-agentctl guard"): // is no matter of the connection
		case o.Spoke != nil && strings.HasPrefix(problem, "Secret ") && strings.Contains(problem, " on "+o.Spoke.String()+": "):
			onSpoke = append(onSpoke, problem)
		default:
			onHub = append(onHub, problem)
		}
	}
	made := []checks.Check{checks.Of("cluster Secret and namespace of the agent on the hub", about.Secret, onHub...)}
	if o.Spoke != nil {
		made = append(made, checks.Of("certificates of the agent on its cluster", "", onSpoke...))
	}
	return made
}

// certificate looks at the agent's certificate where the hub is not asked.
func (o Options) certificate(ctx context.Context) checks.Check {
	const name = "certificates of the agent on its cluster"
	if o.Spoke == nil {
		return checks.Skip(name, "no cluster was given")
	}
	own, err := o.Spoke.Get(ctx, ca.AgentSecret)
	switch {
	case err != nil:
		return checks.Err(name, "", err)
	case own == nil:
		return checks.Skip(name, o.Spoke.Secret(ca.AgentSecret)+" is not there: the agent may have its certificate from elsewhere")
	}
	roots, err := o.Spoke.Get(ctx, ca.SecretName)
	if err != nil || roots == nil {
		return checks.Err(name, "there is no "+o.Spoke.Secret(ca.SecretName), err)
	}
	trusted, err := ca.ReadTrusted(roots, o.Spoke)
	if err != nil {
		return checks.Err(name, "", err)
	}
	about, problems := ca.Examine(own, trusted.Client())
	if about == nil {
		return checks.Of(name, "", problems...)
	}
	return checks.Of(name, about.Subject, problems...)
}

// session looks at the agent's stream, as its principal sees it, and whether the resync gets on.
func (o Options) session(ctx context.Context) []checks.Check {
	const stream, resync = "stream of the agent to a principal", "resync"
	presence := o.Presence()
	at := presence.Of(o.Agent)
	switch at.State {
	case principals.Unknown:
		return []checks.Check{checks.Skip(stream, presence.Unknown.Error()), checks.Skip(resync, "it is not known whether the agent is connected")}
	case principals.Away:
		return []checks.Check{checks.Of(stream, "", "the agent is away: its log says why, and the principal's if it was refused"), checks.Skip(resync, "the agent is away")}
	}
	made := []checks.Check{checks.Of(stream, "connected, build "+at.Build)}
	if at.Session == nil {
		return append(made, checks.Skip(resync, "the principal does not tell of its session"))
	}
	lag := time.Duration(at.Session.LagSeconds * float64(time.Second)).Round(time.Second)
	progress := fmt.Sprintf("%d objects to be synchronised, the oldest since %s", at.Session.Backlog, lag)
	if lag > maxLag {
		made = append(made, checks.Of(resync, "", progress+": the principal's log says what the agent refuses"))
	} else {
		made = append(made, checks.Of(resync, progress))
	}
	held, err := agents.Deletions(ctx, o.Hub, o.Agent)
	if err != nil || len(held) > 0 {
		problem := checks.Err("deletion guard", "", err)
		if err == nil {
			problem = checks.Of("deletion guard", "", "deletions are held: show them with: argocd-agentctl guard list "+o.Agent)
		}
		made = append(made, problem)
	}
	return made
}

// First returns the first check that failed, nil if none did.
func First(all []checks.Check) *checks.Check {
	for i := range all {
		if all[i].Result == checks.Failed {
			return &all[i]
		}
	}
	return nil
}
