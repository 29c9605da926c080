package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// ways are a kubeproxy for each way to reach several principals, by the names of the ways.
func (r *routing) ways(t *testing.T) map[string]*lab.Proxy {
	t.Helper()
	return map[string]*lab.Proxy{
		"address": newKubeproxy(t, lab.ProxyOptions{Principal: r.principals[0]}),
		"envoy":   r.proxy,
		"xds": newKubeproxy(t, lab.ProxyOptions{
			Principal: r.principals[0], Args: []string{"--principal-address=xds:///argocd-agent-principal"}, Env: bootstrapped(t, r.servers[0]),
		}),
	}
}

// user asks for an agent's version again and again, as long as a test goes on.
type user struct {
	caller caller
	path   string

	mu     sync.Mutex
	served time.Time // when the last answer was a good one. Guarded by mu
	failed []string  // answers that were not. Guarded by mu
}

// uses has a user look at an agent by a proxy, until the test is over or stop is called.
func uses(t *testing.T, proxy *lab.Proxy, agent string) (u *user, stop func()) {
	t.Helper()
	u = &user{caller: newCaller(t, proxy, lab.AllAgents), path: "/agents/" + agent + "/version"}
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			u.ask(ctx)
		}
	})
	stop = func() { cancel(); asking.Wait() }
	t.Cleanup(stop)
	return u, stop
}

func (u *user) ask(ctx context.Context) {
	begun := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+u.caller.proxy.Address+u.path, http.NoBody)
	if err != nil {
		panic(err)
	}
	code := "no answer"
	if response, err := u.caller.client.Do(request); err == nil {
		code = response.Status
		_ = response.Body.Close() // a version is not long
	} else if ctx.Err() != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if code == "200 OK" {
		u.served = time.Now()
		return
	}
	u.failed = append(u.failed, fmt.Sprintf("%s after %s", code, time.Since(begun)))
}

// servedSince waits until the user has been served after a time, and returns how long after.
func (u *user) servedSince(t *testing.T, since time.Time) (after time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		after = u.served.Sub(since)
		return after > 0
	}, timeout, 10*time.Millisecond, "%s: %v", u.path, u.failures)
	return after
}

// failures are the answers that were not good ones.
func (u *user) failures() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failed
}

// mayBeWatched lets the hub watch ConfigMaps of a site.
func (s *site) mayBeWatched(t *testing.T) {
	t.Helper()
	grant(t, s.spoke, s.name)
	create(t, s.spoke, core(s.spoke, "configmaps", s.name, "argocd-agent-policy").selection, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argocd-agent-policy", "namespace": s.name},
		"data": map[string]any{"policy.yaml": `{rules: [{nonResourceURLs: ["/version"], verbs: [get]}, {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]}`},
	}})
}

// opensWatch has a proxy watch the ConfigMaps of a site until the test is over, or end is called, and returns what it is answered.
func (s *site) opensWatch(t *testing.T, proxy *lab.Proxy) (lines *bufio.Scanner, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://"+proxy.Address+"/agents/"+s.name+"/api/v1/namespaces/"+s.name+"/configmaps?watch=true", http.NoBody)
	require.NoError(t, err)
	response, err := newCaller(t, proxy, lab.AllAgents).client.Do(request)
	require.NoError(t, err)
	end = func() { cancel(); _ = response.Body.Close() }
	t.Cleanup(end)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return bufio.NewScanner(response.Body), end
}

// watches has a proxy watch the ConfigMaps of a site until the test is over, or end is called, and returns what waits for one of a name that is
// made after that.
func (s *site) watches(t *testing.T, proxy *lab.Proxy) (sees func(name string), end func()) {
	t.Helper()
	lines, end := s.opensWatch(t, proxy)
	sees = func(name string) {
		t.Helper()
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := s.spoke.Kubernetes.CoreV1().ConfigMaps(s.name).Create(t.Context(), config, metav1.CreateOptions{})
		require.NoError(t, err)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"name":"`+name+`"`) {
				return
			}
		}
		require.NoError(t, lines.Err())
		require.Fail(t, "the watch ended")
	}
	return sees, end
}

// A principal that dies takes what went through it along, and nothing else. Its agents, and those who look at them, go on at others.
func TestPrincipalDiesUnderUsers(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 3, 2)
	lost := newSite(t, "lost", lab.AgentOptions{Principal: r.principals[1]}).connected(t)
	beside := newSite(t, "beside", lab.AgentOptions{Principal: r.principals[2]}).connected(t)
	app := lost.newTwin("lost").create(t)
	app.arrives(t)
	beside.mayBeWatched(t)
	users, others, watches := make(map[string]*user), make(map[string]*user), make(map[string]func(string))
	ways := r.ways(t)
	for way, proxy := range ways {
		users[way], _ = uses(t, proxy, lost.name)
		others[way], _ = uses(t, proxy, beside.name)
		watches[way], _ = beside.watches(t, proxy)
	}
	began := time.Now()
	for way := range ways {
		users[way].servedSince(t, began)
		others[way].servedSince(t, began)
	}
	earlier := make(map[string]int)
	for way := range ways {
		require.Empty(t, others[way].failures(), way)
		earlier[way] = len(users[way].failures())
	}
	mark := lost.agent.Mark()
	died := time.Now()
	r.principals[1].Kill()
	lost.agent.Principal.Move(r.principals[2].Address) // as the Service before the principals has it
	app.hub.edit(t, label("team", "blue"))
	app.spoke.becomes(t, labelled("team", "blue"))
	t.Logf("synchronised %s after the death", time.Since(died))
	saysNow(t, lost.agent, mark, lab.ConnectedAgentLine)
	connected := time.Now()
	for way := range ways {
		t.Logf("%s: served %s after the agent was connected, failed %v", way, users[way].servedSince(t, connected), users[way].failures()[earlier[way]:])
		require.Empty(t, others[way].failures(), "%s: whoever looks at an agent of another principal notices nothing", way)
		watches[way]("after-" + way)
	}
	r.leads(t, lost.name, "replica-2")
}

// Without xds the last routes stay. What they do not know costs a hop, and no request.
func TestXDSIsAway(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 2, 2)
	s := newSite(t, "unrouted", lab.AgentOptions{Principal: r.principals[0]}).connected(t)
	ways := r.ways(t)
	serves := func() {
		t.Helper()
		for way, proxy := range ways {
			status, body := newCaller(t, proxy, lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
			require.Equal(t, http.StatusOK, status, "%s: %s", way, body)
		}
	}
	serves()
	r.leads(t, s.name, "replica-0")
	for _, server := range r.servers {
		server.Kill()
	}
	serves()
	s.moves(t, r.principals[1])
	serves()
	require.NotZero(t, r.forwarded(t), "the routes are those of before")
	late := newSite(t, "unheard-of", lab.AgentOptions{Principal: r.principals[1]}).connected(t)
	status, body := newCaller(t, ways["xds"], lab.AllAgents).asks(t, "/agents/"+late.name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
	for _, server := range r.servers {
		start(t, server.Start)
		says(t, server, "Listening for xDS clients")
	}
	serves()
	r.leads(t, s.name, "replica-1")
	status, body = newCaller(t, ways["envoy"], lab.AllAgents).asks(t, "/agents/"+late.name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
}

// An agent that comes to another principal again and again, under users, misses no change, and is reached after each.
func TestAgentMovesUnderUsers(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 3, 1)
	s := newSite(t, "restless", lab.AgentOptions{Principal: r.principals[0]}).connected(t)
	app := s.newTwin("restless").create(t)
	app.arrives(t)
	users := make(map[string]*user)
	for way, proxy := range r.ways(t) {
		users[way], _ = uses(t, proxy, s.name)
	}
	moves := 50
	if testing.Short() {
		moves = 10
	}
	for move := 1; move <= moves; move++ {
		app.hub.edit(t, label("moved", strconv.Itoa(move)))
		s.moves(t, r.principals[move%len(r.principals)])
		connected := time.Now()
		for _, u := range users {
			u.servedSince(t, connected)
		}
	}
	app.spoke.becomes(t, labelled("moved", strconv.Itoa(moves)))
	r.leads(t, s.name, "replica-"+strconv.Itoa(moves%len(r.principals)))
	for way, u := range users {
		t.Logf("%s: %d requests failed as the agent's connection was cut under them: %v", way, len(u.failures()), u.failures())
	}
}
