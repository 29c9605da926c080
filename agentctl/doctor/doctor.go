// Package doctor walks every hop between a hub and an agent's cluster, from both sides as far as each can be asked, and tells which work.
// The hops are in the order in which a connection needs them: the first that fails is the one to mend.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/redisprobe"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

// maxLag is for how long an object may wait before the resync counts as stuck.
const maxLag = time.Minute

// paramsConfigMap has the settings of principal and agent.
const paramsConfigMap = manifest.ParamsConfigMap

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
	// PrincipalRedis is the hub's Redis, AgentRedis that of the agent's cluster, and RedisProxy redisproxy.
	PrincipalRedis, AgentRedis, RedisProxy Redis
	// RedisKeyPrefix is what the keys of the hub's Argo CD begin with, if that is not what its Deployment says.
	RedisKeyPrefix string
	// PresenceRights are those that Presence needs on the hub.
	PresenceRights []authorizationv1.ResourceAttributes
	// ByDestination says that Applications are mapped by their destinations, where no ConfigMap does.
	ByDestination bool
	// PrincipalUser and AgentUser are the users by which the API servers know the programs; those of their ServiceAccounts if empty.
	PrincipalUser, AgentUser string
}

// walk is one walk along the hops, with what the earlier ones found for the later ones.
type walk struct {
	Options

	own    *ownRights
	known  *agents.Agent // what the hub knows of the agent, if that was read already
	argocd argocdServer
	proxy  *redisprobe.Target // redisproxy, nil if it cannot be used
	opened []func()           // what is to be closed in the end
}

// Examine walks the hops of one agent, and calls each with every check that was made, so that a person sees how far it is.
func Examine(ctx context.Context, o Options, each func(checks.Check)) []checks.Check {
	w := &walk{Options: o, own: new(ownRights)}
	defer w.close()
	t := teller{each: each}
	w.atSpoke(ctx, &t)
	if o.Hub != nil {
		w.atHub(ctx, &t)
	}
	w.between(ctx, &t)
	if w.Hub != nil {
		t.tell(w.hubRedises(ctx)...)
	}
	w.redises(ctx, &t)
	return t.all
}

// teller collects checks, and tells each of them.
type teller struct {
	all  []checks.Check
	each func(checks.Check)
}

func (t *teller) tell(made ...checks.Check) {
	for _, c := range made {
		t.each(c)
	}
	t.all = append(t.all, made...)
}

// atSpoke are the hops on the agent's cluster. One whose API server cannot be asked is asked for nothing more.
func (w *walk) atSpoke(ctx context.Context, t *teller) {
	if w.Spoke == nil {
		return
	}
	reached := w.reach(ctx, w.Spoke)
	t.tell(reached)
	if reached.Result == checks.Failed {
		w.Spoke = nil
		return
	}
	t.tell(w.rights(ctx, w.Spoke, agentRights)...)
}

// atHub are the hops on the hub that are those of all agents, in the same way.
func (w *walk) atHub(ctx context.Context, t *teller) {
	reached := w.reach(ctx, w.Hub)
	t.tell(reached)
	if reached.Result == checks.Failed {
		w.Hub = nil
		return
	}
	t.tell(w.rights(ctx, w.Hub, principalRights)...)
}

// between are the hops between an agent and the hub, but for Redis.
func (w *walk) between(ctx context.Context, t *teller) {
	t.tell(w.identity(ctx)...)
	t.tell(w.dial(ctx)...)
	if w.Hub != nil {
		t.tell(w.session(ctx)...)
		t.tell(w.kube(ctx))
	}
}

// redises are the hops of an agent to the Redis of its cluster.
func (w *walk) redises(ctx context.Context, t *teller) {
	if w.Spoke != nil {
		made, _ := w.redisOf(ctx, w.spokeRedis(), &spokeRedisKeys)
		t.tell(made)
	}
	if w.Hub != nil {
		t.tell(w.redisThroughTheTunnel(ctx)...)
	}
}

func (w *walk) close() {
	for _, f := range w.opened {
		f()
	}
}

// reach looks whether a cluster's API server can be asked.
func (w *walk) reach(ctx context.Context, c *cluster.Client) checks.Check {
	version, err := c.Version(ctx)
	return checks.Err("API server of "+c.String(), version, err)
}

// Names of hops.
const (
	identityHop    = "cluster Secret and namespace of the agent on the hub"
	certificateHop = "certificates of the agent on its cluster"
	guardHop       = "deletion guard"
)

// identity looks at what the hub knows of the agent, and what the agent has on its cluster.
func (w *walk) identity(ctx context.Context) []checks.Check {
	if w.Hub == nil {
		return []checks.Check{w.certificate(ctx)}
	}
	var made []checks.Check
	spoke := w.Spoke
	if spoke != nil {
		if c, lacks := w.lacking(ctx, certificateHop, spoke, secrets(ca.AgentSecret, ca.SecretName)...); lacks {
			spoke, made = nil, append(made, c)
		}
	}
	needs := append(hubSecrets(), append(secrets(argocd.ClusterSecretName(w.Agent)), listSecrets())...)
	if c, lacks := w.lacking(ctx, identityHop, w.Hub, needs...); lacks {
		if len(made) == 0 {
			made = append(made, w.certificate(ctx))
		}
		return append([]checks.Check{c}, made...)
	}
	about, err := w.inspect(ctx, spoke)
	if err != nil {
		return append([]checks.Check{checks.Err(identityHop, "", err)}, made...)
	}
	var onHub, onSpoke []string
	for _, problem := range about.Problems {
		switch {
		case about.HeldDeletions > 0 && strings.Contains(problem, "argocd-agentctl guard"): // is no matter of the connection
		case spoke != nil && strings.HasPrefix(problem, "Secret ") && strings.Contains(problem, " on "+spoke.String()+": "):
			onSpoke = append(onSpoke, problem)
		default:
			onHub = append(onHub, problem)
		}
	}
	switch {
	case spoke == nil:
	case about.Spoke.From != "":
		made = append(made, checks.Skip(certificateHop, "the agent has its identity from "+about.Spoke.From))
	default:
		made = append(made, checks.Of(certificateHop, "", onSpoke...))
	}
	return append([]checks.Check{checks.Of(identityHop, about.Secret, onHub...)}, made...)
}

// hubSecrets are the rights to get the Secrets that cluster Secrets are compared with.
func hubSecrets() []authorizationv1.ResourceAttributes {
	return secrets(ca.SecretName, ca.ResourceProxySecret, signingkey.SecretName)
}

// inspect returns what the hub knows of the agent, and what it has on its cluster unless that is nil.
func (w *walk) inspect(ctx context.Context, spoke *cluster.Client) (agents.Agent, error) {
	if w.known != nil && spoke == nil {
		return *w.known, nil
	}
	return agents.Inspect(ctx, w.Hub, spoke, w.Agent, notAsked)
}

// notAsked stands for principals that are asked later, whether agents are connected.
func notAsked() principals.Presence { return principals.Presence{Unknown: errNotAsked} }

// certificate looks at the agent's certificate where the hub is not asked.
func (w *walk) certificate(ctx context.Context) checks.Check {
	const name = certificateHop
	if w.Spoke == nil {
		return checks.Skip(name, "its cluster was not given, or is not reached")
	}
	if c, lacks := w.lacking(ctx, name, w.Spoke, secrets(ca.AgentSecret, ca.SecretName)...); lacks {
		return c
	}
	origin, err := agents.OriginOfAgent(ctx, w.Spoke)
	if err != nil {
		return checks.Err(name, "", err)
	}
	own, err := w.Spoke.Get(ctx, ca.AgentSecret)
	switch {
	case origin.Elsewhere != "":
		return checks.Skip(name, "the agent has its identity from "+origin.Elsewhere)
	case err != nil:
		return checks.Err(name, "", err)
	case own == nil:
		return checks.Skip(name, w.Spoke.Secret(ca.AgentSecret)+" is not there: the agent may have its certificate from elsewhere")
	}
	roots, err := w.Spoke.Get(ctx, ca.SecretName)
	if err != nil || roots == nil {
		return checks.Err(name, "there is no "+w.Spoke.Secret(ca.SecretName), err)
	}
	trusted, err := ca.ReadTrusted(roots, w.Spoke)
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
func (w *walk) session(ctx context.Context) []checks.Check {
	const stream, resync = "stream of the agent to a principal", "resync"
	if c, lacks := w.lacking(ctx, stream, w.Hub, w.PresenceRights...); lacks {
		return []checks.Check{c, checks.Skip(resync, "it is not known whether the agent is connected")}
	}
	presence := w.Presence()
	at := presence.Of(w.Agent)
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
	if c, lacks := w.lacking(ctx, guardHop, w.Hub, authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Name: guard.HeldConfigMap}); lacks {
		return append(made, c)
	}
	held, err := agents.Deletions(ctx, w.Hub, w.Agent)
	if err != nil || len(held) > 0 {
		problem := checks.Err(guardHop, "", err)
		if err == nil {
			problem = checks.Of(guardHop, "", "deletions are held: show them with: argocd-agentctl guard list "+w.Agent)
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
