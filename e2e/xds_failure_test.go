package e2e_test

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

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
	other := beside.newTwin("beside").create(t)
	other.arrives(t)
	beside.mayBeWatched(t)
	ways := r.ways(t)
	users, others, watches := usersOf(t, ways, lost, app), usersOf(t, ways, beside, other), make(map[string]func(string))
	for name, w := range ways {
		if name != byDNS { // which goes by any of them, also by the one that dies
			watches[name], _ = beside.watches(t, w.kubeproxy)
		}
	}
	served(t, users)
	served(t, others)
	mark := lost.agent.Mark()
	died := time.Now()
	r.principals[1].Kill()
	lost.agent.Principal.Move(r.principals[2].Address) // as the Service before the principals has it
	app.hub.edit(t, label("team", "blue"))
	app.spoke.becomes(t, labelled("team", "blue"))
	t.Logf("synchronised %s after the death", time.Since(died))
	saysNow(t, lost.agent, mark, lab.ConnectedAgentLine)
	connected := time.Now()
	for name, u := range users {
		t.Logf("%s: served %s after the agent was connected, failed %v", name, u.servedSince(t, connected), u.failures())
	}
	served(t, others)
	for name, u := range others {
		if !strings.HasSuffix(name, byDNS) {
			require.Empty(t, u.failures(), "%s: whoever looks at an agent of another principal notices nothing", name)
		}
	}
	for way, sees := range watches {
		sees("after-" + way)
	}
	r.leads(t, lost.name, "replica-2")
}

// Without xds the last routes stay. What they do not know costs a hop, and no request.
func TestXDSIsAway(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 2, 2)
	s := newSite(t, "unrouted", lab.AgentOptions{Principal: r.principals[0]}).connected(t)
	app := s.newTwin("unrouted").create(t)
	app.arrives(t)
	ways := r.ways(t)
	users := usersOf(t, ways, s, app)
	serves := func() {
		t.Helper()
		served(t, users)
		for name, w := range ways {
			status, body := newCaller(t, w.kubeproxy, lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
			require.Equal(t, http.StatusOK, status, "%s: %s", name, body)
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
	status, body := newCaller(t, ways[byXDS].kubeproxy, lab.AllAgents).asks(t, "/agents/"+late.name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
	for _, server := range r.servers {
		start(t, server.Start)
		says(t, server, "Listening for xDS clients")
	}
	serves()
	r.leads(t, s.name, "replica-1")
	status, body = newCaller(t, ways[byEnvoy].kubeproxy, lab.AllAgents).asks(t, "/agents/"+late.name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
}

// An agent that comes to another principal again and again, under users, misses no change, and is reached after each.
func TestAgentMovesUnderUsers(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 3, 1)
	s := newSite(t, "restless", lab.AgentOptions{Principal: r.principals[0]}).connected(t)
	app := s.newTwin("restless").create(t)
	app.arrives(t)
	users := usersOf(t, r.ways(t), s, app)
	moves := 50
	if testing.Short() {
		moves = 10
	}
	for move := 1; move <= moves; move++ {
		app.hub.edit(t, label("moved", strconv.Itoa(move)))
		s.moves(t, r.principals[move%len(r.principals)])
		served(t, users)
	}
	app.spoke.becomes(t, labelled("moved", strconv.Itoa(moves)))
	r.leads(t, s.name, "replica-"+strconv.Itoa(moves%len(r.principals)))
	for way, u := range users {
		t.Logf("%s: %d requests failed as the agent's connection was cut under them: %v", way, len(u.failures()), u.failures())
	}
}
