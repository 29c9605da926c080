package e2e_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
)

// Principals that do not reach each other go on with the agents that each has, also with one that comes from the other side; and are one
// again by themselves.
func TestPrincipalsThatAreParted(t *testing.T) {
	t.Parallel()
	principals, between := newParted(t)
	proxies := []*lab.Proxy{newKubeproxy(t, lab.ProxyOptions{Principal: principals[0]}), newKubeproxy(t, lab.ProxyOptions{Principal: principals[1]})}
	reaches := func(proxy *lab.Proxy, s *site, want int) {
		t.Helper()
		require.Eventually(t, func() bool {
			status, _ := newCaller(t, proxy, lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
			return status == want
		}, timeout, 100*time.Millisecond)
	}
	stays := newSite(t, "stays", lab.AgentOptions{Principal: principals[0]}).connected(t)
	goes := newSite(t, "goes", lab.AgentOptions{Principal: principals[1]}).connected(t)
	one, two := stays.newTwin("stays").create(t), goes.newTwin("goes").create(t)
	one.arrives(t)
	two.arrives(t)
	for _, cable := range between {
		cable.Cut()
	}
	for _, p := range principals {
		says(t, p, "Disconnected from peer")
	}
	same := func(colour string) {
		t.Helper()
		for _, app := range []*twin{one, two} {
			app.hub.edit(t, label("team", colour))
			app.spoke.becomes(t, labelled("team", colour))
		}
	}
	same("blue")
	reaches(proxies[1], goes, http.StatusOK)
	reaches(proxies[0], goes, http.StatusServiceUnavailable) // nobody on this side has it
	goes.moves(t, principals[0])
	same("green")
	reaches(proxies[0], goes, http.StatusOK)
	reaches(proxies[1], goes, http.StatusServiceUnavailable)
	mark0, mark1 := principals[0].Mark(), principals[1].Mark()
	for _, cable := range between {
		cable.Restore()
		cable.Reset()
	}
	saysNow(t, principals[0], mark0, "Connected to peer")
	saysNow(t, principals[1], mark1, "Connected to peer")
	reaches(proxies[1], goes, http.StatusOK)
	goes.moves(t, principals[1])
	same("red")
	reaches(proxies[0], goes, http.StatusOK)
}

// newParted starts two principals that know each other by links, which are returned.
func newParted(t *testing.T) (principals []*lab.Principal, between []*link.Link) {
	t.Helper()
	ports := new(port.Allocator)
	t.Cleanup(func() { require.NoError(t, ports.Close()) })
	listen := make([]int, 2)
	for i := range listen {
		free, err := ports.Free()
		require.NoError(t, err)
		listen[i] = free
	}
	for i := range listen {
		other := port.Address(listen[1-i])
		cable, err := shared.Host.Link(t.Context(), t.Name()+" to "+other, other)
		require.NoError(t, err)
		p := newPrincipal(t, lab.PrincipalOptions{Args: []string{
			"--listen-port=" + strconv.Itoa(listen[i]), "--peers=" + cable.Address(), "--pod-name=replica-" + strconv.Itoa(i),
		}})
		p.Address = port.Address(listen[i])
		principals, between = append(principals, p), append(between, cable)
	}
	for _, p := range principals {
		says(t, p, "Connected to peer")
	}
	return principals, between
}
