package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/dnstest"
)

// The ways from kubeproxy and redisproxy to several principals.
const (
	byAddress = "address"
	byDNS     = "dns"
	byXDS     = "xds"
	byEnvoy   = "envoy"
)

// way is what reaches principals by one way.
type way struct{ kubeproxy, redisproxy *lab.Proxy }

// spread has what goes by one address come to all principals in turns, as the Service before them has it.
func (w way) spread(principals []*lab.Principal) {
	addresses := addressesOf(principals)
	w.kubeproxy.Principal.Spread(addresses...)
	w.redisproxy.Principal.Spread(addresses...)
}

func addressesOf(principals []*lab.Principal) []string {
	addresses := make([]string, len(principals))
	for i, p := range principals {
		addresses[i] = p.Address
	}
	return addresses
}

// ways are all four of them.
func (r *routing) ways(t *testing.T) map[string]way {
	t.Helper()
	beside, err := shared.StartSidecar(t.Context(), "redisproxy", nil, r.servers...)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, beside.Stop) })
	ways := map[string]way{
		byEnvoy: {r.proxy, newRedisproxy(t, lab.ProxyOptions{
			Principal: r.principals[0].Behind(beside), Args: []string{"--principal-insecure-plaintext", "--agent-domain=agents.argocd-agent"},
		})},
	}
	for name, options := range map[string]lab.ProxyOptions{
		byAddress: {},
		byDNS:     {Args: r.byDNS(t)},
		byXDS:     {Args: []string{"--principal-address=xds:///argocd-agent-principal"}, Env: bootstrapped(t, r.servers[0])},
	} {
		options.Principal = r.principals[0]
		ways[name] = way{newKubeproxy(t, options), newRedisproxy(t, options)}
	}
	return ways
}

// byDNS has a program find the principals by a name in DNS.
func (r *routing) byDNS(t *testing.T) []string {
	t.Helper()
	var addresses [][4]byte
	var port string
	for _, address := range addressesOf(r.principals) {
		host, number, err := net.SplitHostPort(address)
		require.NoError(t, err)
		addresses, port = append(addresses, [4]byte(net.ParseIP(host).To4())), number
	}
	return []string{"--principal-address=dns://" + dnstest.Serve(t, addresses...).Address() + "/argocd-agent-principal", "--principal-port=" + port}
}

// user asks for something again and again, as long as a test goes on.
type user struct {
	what string
	ask  func(context.Context) error

	mu     sync.Mutex
	served time.Time // when the last answer was a good one. Guarded by mu
	failed []string  // answers that were not. Guarded by mu
}

// use has a user ask until the test is over.
func use(t *testing.T, what string, ask func(context.Context) error) *user {
	t.Helper()
	u := &user{what: what, ask: ask}
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			u.once(ctx)
		}
	})
	t.Cleanup(func() { cancel(); asking.Wait() })
	return u
}

// looks has a user look at a cluster, by kubeproxy.
func (s *site) looks(t *testing.T, kubeproxy *lab.Proxy) *user {
	t.Helper()
	c := newCaller(t, kubeproxy, lab.AllAgents)
	path := "/agents/" + s.name + "/version"
	return use(t, path, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+kubeproxy.Address+path, http.NoBody)
		if err != nil {
			return err
		}
		response, err := c.client.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // it was read to its end
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		return err
	})
}

// reads has a user read what the spoke's Redis has of an Application, by redisproxy and argocd-server's client.
func (a *twin) reads(t *testing.T, redisproxy *lab.Proxy) *user {
	t.Helper()
	key := func(instance string) string { return "app|managed-resources|" + instance + "|1.8.3" }
	dialRedis(t, a.spoke.cluster.ArgoCD.RedisAddress).ask(t, "SET", key(a.declared.Name), "of the spoke")
	client := goredis.NewClient(&goredis.Options{Addr: redisproxy.Address, Password: argocd.RedisPassword})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return use(t, key(a.instance()), func(ctx context.Context) error {
		text, err := client.Get(ctx, key(a.instance())).Result()
		if err == nil && text != "of the spoke" {
			return fmt.Errorf("read %q", text)
		}
		return err
	})
}

// usersOf are one of a site's cluster, and one of an Application there, by each way; by the names of the ways.
func usersOf(t *testing.T, ways map[string]way, s *site, app *twin) map[string]*user {
	t.Helper()
	users := make(map[string]*user)
	for name, w := range ways {
		users["kubeproxy by "+name] = s.looks(t, w.kubeproxy)
		users["redisproxy by "+name] = app.reads(t, w.redisproxy)
	}
	return users
}

func (u *user) once(ctx context.Context) {
	begun := time.Now()
	err := u.ask(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err == nil:
		u.served = time.Now()
	case ctx.Err() == nil:
		u.failed = append(u.failed, fmt.Sprintf("%s after %s", err, time.Since(begun)))
	}
}

// servedSince waits until the user has been served after a time, and returns how long after.
func (u *user) servedSince(t *testing.T, since time.Time) (after time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		after = u.served.Sub(since)
		return after > 0
	}, timeout, 10*time.Millisecond, "%s: %v", u.what, u.failures)
	return after
}

// failures are the answers that were not good ones.
func (u *user) failures() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failed
}

// served waits until all users have been served once more.
func served(t *testing.T, users map[string]*user) {
	t.Helper()
	now := time.Now()
	for _, u := range users {
		u.servedSince(t, now)
	}
}
