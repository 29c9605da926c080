package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// newReplicas starts principals of one hub that know each other, and a kubeproxy at each.
func newReplicas(t *testing.T, count int, args ...string) ([]*lab.Principal, []*lab.Proxy) {
	t.Helper()
	principals, err := shared.NewPrincipals(t.Context(), count, lab.PrincipalOptions{Args: args})
	require.NoError(t, err)
	proxies := make([]*lab.Proxy, count)
	for i, p := range principals {
		start(t, p.Start)
		t.Cleanup(func() { stopped(t, p.Stop) })
		proxies[i] = newKubeproxy(t, lab.ProxyOptions{Principal: p})
	}
	for _, p := range principals {
		for range count - 1 {
			says(t, p, "Connected to peer")
		}
	}
	return principals, proxies
}

// moves has the site's agent come to another principal, as a load balancer may have it.
func (s *site) moves(t *testing.T, to *lab.Principal) {
	t.Helper()
	mark := s.agent.Mark()
	s.agent.Principal.Move(to.Address)
	s.agent.Principal.Reset()
	saysNow(t, s.agent, mark, lab.ConnectedAgentLine)
}

// Whichever principal an agent comes to serves it, and each reaches it.
func TestAnyPrincipalServesAnyAgent(t *testing.T) {
	t.Parallel()
	principals, proxies := newReplicas(t, 3)
	s := newSite(t, "roaming", lab.AgentOptions{Principal: principals[0]}).connected(t)
	app := s.newTwin("roaming").create(t)
	app.arrives(t)
	reached := func(proxy *lab.Proxy) {
		t.Helper()
		for { // the agent may take longer on a slow machine than its principals wait for it
			status, body := newCaller(t, proxy, lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
			if status == http.StatusOK {
				require.Contains(t, body, "gitVersion")
				return
			}
			require.Equal(t, http.StatusServiceUnavailable, status, body)
		}
	}
	for round, colour := range []string{"blue", "green", "red", "white", "black", "grey"} {
		s.moves(t, principals[(round+1)%3])
		app.hub.edit(t, label("team", colour))
		app.spoke.becomes(t, labelled("team", colour))
		for _, proxy := range proxies {
			reached(proxy)
		}
	}
	other := s.newTwin("deleted").create(t)
	other.arrives(t)
	s.moves(t, principals[0])
	other.hub.delete(t)
	other.spoke.vanishes(t)
	app.spoke.becomes(t, labelled("team", "grey"))
}

// What the deletion guard holds is shown, and can be released, whichever principal serves the agent, and whatever becomes of the others.
func TestHeldDeletionsGoAlongWithTheAgent(t *testing.T) {
	t.Parallel()
	principals, _ := newReplicas(t, 3)
	s := newSite(t, "held", lab.AgentOptions{Principal: principals[0]}).connected(t)
	app := s.newTwin("held").create(t)
	app.arrives(t)
	before := app.spoke.get(t)
	stopped(t, s.agent.Stop)
	app.hub.delete(t)
	app.hub.vanishes(t)
	start(t, s.agent.Start)
	held := "Resync would delete 1 of 1 objects; deletions paused"
	shown := core(shared.Hub, "configmaps", lab.Namespace, "argocd-agent-held-deletions")
	isShown := func(is bool) condition {
		return func(object *unstructured.Unstructured) bool {
			return (text(object, "data", s.name+".application") != "") == is
		}
	}
	says(t, principals[0], held)
	shown.becomes(t, isShown(true))
	s.moves(t, principals[1])
	says(t, principals[1], held)
	shown.becomes(t, isShown(true))

	// A principal that starts knows nothing, and takes nothing back.
	stopped(t, principals[0].Stop)
	start(t, principals[0].Start)
	for range 2 {
		says(t, principals[0], "Connected to peer")
	}
	require.True(t, isShown(true)(shown.get(t)))
	app.spoke.remains(t, before)
	listed, err := shared.Agentctl(t.Context(), "guard", "list", s.name)
	require.NoError(t, err)
	require.Contains(t, listed, held)
	_, err = shared.Agentctl(t.Context(), "guard", "release", s.name)
	require.NoError(t, err)
	t.Cleanup(func() {
		guardedSource{cluster: shared.Hub, namespace: lab.Namespace}.removeToken(t, s.name+".application")
	})
	app.spoke.vanishes(t)
	shown.becomes(t, isShown(false))
}
