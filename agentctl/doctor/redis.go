package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/redisprobe"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

const (
	// throughTunnel is the last of the hops.
	throughTunnel = "Redis through the tunnel"
	// cacheVersion ends Argo CD's keys. Any would do here, but for older redisproxies.
	cacheVersion = "1.8.3"
)

// redisOf looks at one Redis, and returns what it is reached by, nil if it cannot be used.
func (w *walk) redisOf(ctx context.Context, p place, keys *paramKeys) (checks.Check, *redisprobe.Target) {
	if c, lacks := w.lacking(ctx, p.hop, p.on, p.rights()...); lacks {
		return c, nil
	}
	if keys != nil {
		if err := p.configure(ctx, *keys); err != nil {
			return checks.Err(p.hop, "", err), nil
		}
	}
	way, missing := p.reach(ctx)
	if missing != nil {
		return *missing, nil
	}
	w.opened = append(w.opened, way.close)
	var target redisprobe.Target
	for _, address := range way.addresses {
		var err error
		if target, err = p.target(ctx, address); err != nil {
			return checks.Err(p.hop, "", err), nil
		}
		client, err := redisprobe.Open(ctx, target)
		if err != nil {
			return checks.Err(p.hop, "", p.remedy(fmt.Errorf("%s: %w", p.address, err))), nil
		}
		client.Close()
	}
	return checks.Of(p.hop, p.address+byTLS(p.tls)), &target
}

// hubRedises looks at what of Redis is on the hub: how argocd-server uses it, Redis itself, and redisproxy.
func (w *walk) hubRedises(ctx context.Context) []checks.Check {
	made := []checks.Check{w.server(ctx)}
	hub, _ := w.redisOf(ctx, w.hubRedis(), &hubRedisKeys)
	proxy, target := w.redisOf(ctx, w.redisProxy(), nil)
	w.proxy = target
	return append(made, hub, proxy)
}

// throughTheTunnel reads what argocd-server reads of an agent: by redisproxy, the principal, and the agent, from the Redis of its cluster.
func (w *walk) redisThroughTheTunnel(ctx context.Context) []checks.Check {
	if w.proxy == nil {
		return []checks.Check{checks.Skip(throughTunnel, "redisproxy is not reached")}
	}
	if c, lacks := w.lacking(ctx, throughTunnel, w.Hub, listSecrets()); lacks {
		return []checks.Check{c}
	}
	secret, err := agents.Find(ctx, w.Hub, w.Agent)
	if err != nil {
		return []checks.Check{checks.Err(throughTunnel, "", err)}
	}
	client, err := redisprobe.Open(ctx, *w.proxy)
	if err != nil {
		return []checks.Check{checks.Err(throughTunnel, "", remedy(err, "redisproxy's log says why"))}
	}
	defer client.Close()
	known, away := w.agentAtProxy(ctx, client, argocd.ServerOf(secret))
	switch {
	case known.Result == checks.Failed:
		return []checks.Check{known, checks.Skip(throughTunnel, "redisproxy does not reach the principal")}
	case away != "":
		return []checks.Check{known, checks.Of(throughTunnel, "", away+": the agent's log says why, and the principal's if it was refused")}
	}
	return []checks.Check{known, w.tree(ctx, client)}
}

// agentAtProxy asks redisproxy for the state of the agent's cluster, which it composes of what the principal tells it; and returns what it
// says of an agent that is away.
func (w *walk) agentAtProxy(ctx context.Context, client *redisprobe.Client, server string) (made checks.Check, away string) {
	const name = "redisproxy's connection to the principal"
	value, err := client.Do(ctx, "GET", w.prefix()+"cluster|info|"+server+"|"+cacheVersion)
	if err != nil {
		return checks.Err(name, "", remedy(err, "redisproxy's log says why")), ""
	}
	if value == nil {
		return checks.Of(name, "", "redisproxy does not know the agent: look at its /readyz and its log whether it is connected to the principal, at the server of "+
			"the agent's cluster Secret, and whether --redis-key-prefix is that of Argo CD, here and at redisproxy"), ""
	}
	var info struct {
		State struct{ Status, Message string } `json:"connectionState"`
	}
	if err := json.Unmarshal(value, &info); err != nil {
		return checks.Err(name, "", remedy(err, "look whether --redis-proxy leads to redisproxy, and not to Redis")), ""
	}
	switch info.State.Status {
	case "Successful":
		return checks.Of(name, info.State.Message), ""
	case "Failed": // it knows that the agent is away
		return checks.Of(name, "it knows the agent"), info.State.Message
	default:
		return checks.Of(name, "", info.State.Message+": look at the principal, at redisproxy's certificate for it, and at the principal's --hub-components"), ""
	}
}

// prefix is what Argo CD's keys begin with.
func (w *walk) prefix() string {
	if w.RedisKeyPrefix != "" {
		return w.RedisKeyPrefix
	}
	return w.argocd.prefix
}

// tree reads the resource tree of an Application of the agent's, whether there is one or not.
func (w *walk) tree(ctx context.Context, client *redisprobe.Client) checks.Check {
	instance := w.Agent + "_argocd-agentctl-doctor"
	kind, err := w.setup(ctx)
	if err != nil {
		return checks.Err(throughTunnel, "", err)
	}
	if kind.byDestination {
		if c, lacks := w.lacking(ctx, throughTunnel, w.Hub, authorizationv1.ResourceAttributes{Verb: "list", Group: argoproj, Resource: "applications"}); lacks {
			return c
		}
		name, err := w.Hub.ApplicationTo(ctx, w.Agent)
		if err != nil {
			return checks.Err(throughTunnel, "", err)
		}
		if name == "" {
			return checks.Skip(throughTunnel, fmt.Sprintf("no Application in namespace %s on %s has the destination %s, so nobody reads its cluster's Redis", w.Hub.Namespace, w.Hub, w.Agent))
		}
		instance = name
	}
	_, err = client.Do(ctx, "GET", w.prefix()+"app|resources-tree|"+instance+"|"+cacheVersion)
	return checks.Err(throughTunnel, "answered", tunnelRemedy(err))
}

// tunnelRemedy says what to do about what redisproxy replies, by which of the hops it says has failed.
func tunnelRemedy(err error) error {
	if err == nil || !errors.Is(err, redisprobe.ErrReply) {
		return remedy(err, "redisproxy's log says why")
	}
	text := err.Error()
	for _, known := range []struct{ said, what string }{
		{"the spoke's Redis cannot be reached", "the agent does not reach the Redis of its cluster: look at --redis-addr, --redis-tls-enabled and REDIS_PASSWORD of the agent"},
		{"not connected", "the agent is away: its log says why, and the principal's if it was refused"},
		{"PermissionDenied", "the principal does not let redisproxy reach agents: look at its --hub-components, and at redisproxy's certificate"},
		{"took too long", "the agent, or the Redis of its cluster, does not answer: their logs say why"},
	} {
		if strings.Contains(text, known.said) {
			return remedy(err, known.what)
		}
	}
	return remedy(err, "redisproxy's log, and the agent's, say why; --enable-resource-proxy=false of the agent turns this off")
}
