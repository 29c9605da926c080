package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/redisprobe"
)

// Secrets of Redis, which Argo CD and argocd-agent call so.
const (
	redisSecret        = "argocd-redis"
	redisPasswordKey   = "auth"
	redisUsernameKey   = "auth_username"
	redisTLSSecret     = "argocd-redis-tls"
	redisProxySecret   = "argocd-redis-proxy-tls"
	redisCertificateCA = "ca.crt"
)

// Redis says where one is reached from here, and how. What is empty is as the clusters say.
type Redis struct {
	// Address is host:port; a port is forwarded to it if it is empty.
	Address string
	// TLS is whether it speaks TLS.
	TLS *bool
}

// paramKeys are the keys of the settings of a Redis in ConfigMap argocd-agent-params, as argocd-agent has them.
type paramKeys struct {
	address, tls, insecure, secret, username string
}

//nolint:gochecknoglobals // constant tables
var (
	hubRedisKeys = paramKeys{
		address: manifest.HubRedis, tls: "principal.redis.tls.enabled", insecure: "principal.redis.tls.insecure",
		secret: "principal.redis.ca-secret-name",
	}
	spokeRedisKeys = paramKeys{
		address: manifest.Redis, tls: "agent.redis.tls.enabled", insecure: "agent.redis.tls.insecure", secret: "agent.redis.tls.ca-secret-name",
		username: "agent.redis.username",
	}
)

// place is a Redis that is to be looked at.
type place struct {
	hop, flag string
	on        *cluster.Client
	given     Redis
	// address is where its clients on the cluster reach it.
	address  string
	tls      bool
	insecure bool
	caSecret string
	username string
	// settings say, for remedies, which settings its clients are told of TLS by.
	settings string
}

// redisRights are those that looking at a Redis needs.
func (p place) rights() []authorizationv1.ResourceAttributes {
	needs := []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "configmaps", Name: paramsConfigMap},
		{Verb: "get", Resource: "secrets", Name: redisSecret},
	}
	if p.given.Address == "" {
		needs = append(needs, authorizationv1.ResourceAttributes{Verb: "get", Resource: "services"},
			authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"},
			authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "portforward"})
	}
	return needs
}

// hubRedis is the Redis of the hub, as redisproxy uses it.
func (w *walk) hubRedis() place {
	return place{
		hop: "Redis of the hub", flag: "principal-redis", on: w.Hub, given: w.PrincipalRedis,
		settings: "redisproxy's --redis-tls-enabled and " + hubRedisKeys.tls + " in " + w.Hub.ConfigMap(paramsConfigMap),
	}
}

// spokeRedis is the Redis of the agent's cluster, as the agent uses it.
func (w *walk) spokeRedis() place {
	return place{
		hop: "Redis of the agent's cluster", flag: "agent-redis", on: w.Spoke, given: w.AgentRedis,
		settings: "the agent's --redis-tls-enabled, " + spokeRedisKeys.tls + " in " + w.Spoke.ConfigMap(paramsConfigMap),
	}
}

// redisProxy is redisproxy, as argocd-server uses it.
func (w *walk) redisProxy() place {
	p := place{
		hop: "redisproxy", flag: "redis-proxy", on: w.Hub, given: w.RedisProxy, address: w.argocd.redis, tls: w.argocd.tls, insecure: w.argocd.insecure,
		caSecret: redisProxySecret, settings: "argocd-server's --redis-use-tls",
	}
	if w.argocd.workload == "" {
		p.address = defaultProxy
	}
	return p
}

// configure reads from the cluster how a Redis is used there.
func (p *place) configure(ctx context.Context, keys paramKeys) error {
	params, err := p.on.ConfigMapData(ctx, paramsConfigMap)
	if err != nil {
		return err
	}
	p.address = cmp.Or(params[keys.address], defaultRedis)
	p.tls, p.insecure = params[keys.tls] == "true", params[keys.insecure] == "true"
	p.caSecret = cmp.Or(params[keys.secret], redisTLSSecret)
	p.username = params[keys.username]
	return nil
}

// target returns what is probed, at an address that leads there.
func (p *place) target(ctx context.Context, address string) (redisprobe.Target, error) {
	t := redisprobe.Target{Address: address, Username: p.username, Timeout: hopTimeout}
	password, err := p.on.Get(ctx, redisSecret)
	if err != nil {
		return t, err
	}
	if password != nil {
		t.Password = string(password.Data[redisPasswordKey])
		t.Username = cmp.Or(t.Username, string(password.Data[redisUsernameKey]))
	}
	if p.given.TLS != nil {
		p.tls = *p.given.TLS
	}
	if !p.tls {
		return t, nil
	}
	t.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: p.insecure} //nolint:gosec // as its clients have it
	if t.Names = []string{hostOf(p.address)}; p.given.Address != "" && hostOf(p.given.Address) != t.Names[0] {
		t.Names = append(t.Names, hostOf(p.given.Address))
	}
	roots, err := p.on.Get(ctx, p.caSecret)
	if err != nil {
		return t, err
	}
	if roots != nil && len(roots.Data[redisCertificateCA]) > 0 {
		t.TLS.RootCAs = x509.NewCertPool()
		if !t.TLS.RootCAs.AppendCertsFromPEM(roots.Data[redisCertificateCA]) {
			return t, fmt.Errorf("%s: its key %s has no certificate in PEM form: write the CA of Redis' certificate there", p.on.Secret(p.caSecret), redisCertificateCA)
		}
	}
	return t, nil
}

// remedy adds what to do about a Redis that cannot be used.
func (p *place) remedy(err error) error {
	for _, known := range []struct {
		is   error
		what string
	}{
		{redisprobe.ErrUnreachable, "look at its Pods, its Service and the NetworkPolicies of its namespace, and at --" + p.flag + " if that is given"},
		{redisprobe.ErrPlain, "have it speak TLS, or turn TLS off: " + p.settings + ", and --" + p.flag + "-tls=false here"},
		{redisprobe.ErrTLS, "turn TLS on: " + p.settings + ", and --" + p.flag + "-tls here"},
		{redisprobe.ErrUntrusted, "write the CA of its certificate into the key " + redisCertificateCA + " of " + p.on.Secret(p.caSecret) + ", or renew the certificate"},
		{redisprobe.ErrName, "issue it for " + hostOf(p.address) + ", by which its clients know it"},
		{redisprobe.ErrPassword, "have the key " + redisPasswordKey + " of " + p.on.Secret(redisSecret) + " be the password of Redis, and restart what uses it"},
		{redisprobe.ErrNoPassword, "write it into the key " + redisPasswordKey + " of " + p.on.Secret(redisSecret)},
		{redisprobe.ErrNoRedis, "look at where its Service leads, and at --" + p.flag + " if that is given"},
	} {
		if errors.Is(err, known.is) {
			return remedy(err, known.what)
		}
	}
	return remedy(err, "its log, and that of redisproxy, say why")
}

// service returns the Service that an address is, and its namespace; false for one outside of the cluster.
func service(address, namespace string) (name, in string, ok bool) {
	labels := strings.Split(strings.TrimSuffix(hostOf(address), "."), ".")
	switch {
	case len(labels) == 1:
		return labels[0], namespace, labels[0] != ""
	case len(labels) == 2, labels[2] == "svc":
		return labels[0], labels[1], !slices.Contains([]string{"local", "localhost"}, labels[1])
	default:
		return "", "", false
	}
}

// reached is a Redis as it is reached from here: by the address that was given, or by forwarded ports, for the caller to close.
type reached struct {
	addresses []string
	forwards  []*cluster.Forward
}

func (r *reached) close() {
	for _, f := range r.forwards {
		f.Close()
	}
}

// reach finds the way to a Redis. The check, if it is not nil, says why there is none.
func (p *place) reach(ctx context.Context) (*reached, *checks.Check) {
	if p.given.Address != "" {
		return &reached{addresses: []string{p.given.Address}}, nil
	}
	unreached := func(why string) (*reached, *checks.Check) {
		c := checks.Skip(p.hop, why+": give --"+p.flag+", host:port as it is reached from here")
		return nil, &c
	}
	name, namespace, ok := service(p.address, p.on.Namespace)
	if !ok {
		return unreached(p.address + " is no Service of the cluster")
	}
	forwards, err := p.on.In(namespace).ForwardPods(ctx, name)
	r := &reached{forwards: forwards}
	switch {
	case errors.Is(err, cluster.ErrNoService):
		return unreached(err.Error())
	case err != nil:
		r.close()
		c := checks.Err(p.hop, "", remedy(err, "look at its Pods, or give --"+p.flag))
		return nil, &c
	}
	for _, f := range forwards {
		r.addresses = append(r.addresses, f.Address)
	}
	return r, nil
}
