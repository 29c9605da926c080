package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// Where Argo CD keeps what its programs are told at their start.
const (
	argocdParams    = "argocd-cmd-params-cm"
	redisServer     = "redis.server"
	defaultRedis    = "argocd-redis:6379"
	defaultProxy    = "argocd-agent-redis-proxy:6379"
	serverComponent = "server"
)

// argocdServer is what the hub's argocd-server is told of its Redis.
type argocdServer struct {
	workload string // empty if it was not found
	redis    string // host:port
	tls      bool
	insecure bool // it trusts any certificate
	prefix   string
}

// readServer reads how argocd-server is deployed, and its settings. What cannot be read is as by default.
func readServer(ctx context.Context, hub *cluster.Client) (argocdServer, error) {
	s := argocdServer{redis: defaultRedis}
	data, err := hub.ConfigMapData(ctx, argocdParams)
	if err != nil {
		return s, err
	}
	s.redis = cmp.Or(data[redisServer], defaultRedis)
	all, err := hub.Workloads(ctx)
	if err != nil {
		return s, err
	}
	at := slices.IndexFunc(all, func(w cluster.Workload) bool { return w.Is(serverComponent) })
	if at < 0 {
		return s, nil
	}
	w := &all[at]
	s.workload = w.String()
	s.redis = cmp.Or(w.Variable("REDIS_SERVER"), s.redis)
	if address, ok := w.Flag("--redis"); ok {
		s.redis = address
	}
	s.tls, s.insecure = isSet(w, "--redis-use-tls"), isSet(w, "--redis-insecure-skip-tls-verify")
	s.prefix = w.Variable("ARGOCD_REDIS_KEY_PREFIX")
	return s, nil
}

// isSet reports whether a workload has a flag that is true or false.
func isSet(w *cluster.Workload, flag string) bool {
	value, ok := w.Flag(flag)
	return ok && value != "false"
}

func serverRights() []authorizationv1.ResourceAttributes {
	return []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "configmaps", Name: argocdParams},
		{Verb: "list", Group: "apps", Resource: "deployments"}, {Verb: "list", Group: "apps", Resource: "statefulsets"},
	}
}

// server looks whether argocd-server asks redisproxy, and not the hub's Redis itself, which knows nothing of agents.
func (w *walk) server(ctx context.Context) checks.Check {
	const name = "argocd-server's connection to redisproxy"
	if c, lacks := w.lacking(ctx, name, w.Hub, serverRights()...); lacks {
		return c
	}
	s, err := readServer(ctx, w.Hub)
	w.argocd = s
	if err != nil {
		return checks.Err(name, "", err)
	}
	if s.workload == "" {
		return checks.Skip(name, fmt.Sprintf("there is no Deployment of argocd-server in namespace %s on %s", w.Hub.Namespace, w.Hub))
	}
	params, err := w.Hub.ConfigMapData(ctx, paramsConfigMap)
	if err != nil {
		return checks.Err(name, "", err)
	}
	if hub := cmp.Or(params[hubRedisKeys.address], defaultRedis); same(s.redis, hub, w.Hub.Namespace) {
		return checks.Of(name, "", fmt.Sprintf("%s uses %s, which is the hub's Redis: it has nothing of agents: set %s in %s to redisproxy, such as %s, and restart argocd-server",
			s.workload, s.redis, redisServer, w.Hub.ConfigMap(argocdParams), defaultProxy))
	}
	return checks.Of(name, s.redis+byTLS(s.tls))
}

// hostOf returns the host of an address, or all of one that has no port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// same reports whether two addresses are of one host, or of one Service.
func same(a, b, namespace string) bool {
	aName, aIn, aOK := service(a, namespace)
	bName, bIn, bOK := service(b, namespace)
	return hostOf(a) == hostOf(b) || aOK && bOK && aName == bName && aIn == bIn
}

func byTLS(tls bool) string {
	if tls {
		return " by TLS"
	}
	return " in plain text"
}
