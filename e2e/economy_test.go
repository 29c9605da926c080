package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// ledger tells what principals and a site's agent ask of their API servers. Other tests' would be in it too, so a test that
// keeps one runs alone.
type ledger struct {
	site       *site
	last       *twin // goes both ways after all that is counted, to show that nothing more is to come
	pages      int
	hub, spoke int64 // where the API servers' logs were when the page was opened
}

func (s *site) ledger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{site: s, last: s.newTwin("last").create(t)}
	l.last.arrives(t)
	l.close(t)
	return l
}

// open begins a new page.
func (l *ledger) open() { l.hub, l.spoke = shared.Hub.APIServer.Mark(), l.site.spoke.APIServer.Mark() }

// close returns what was asked since the page was opened.
func (l *ledger) close(t *testing.T) (hub, spoke []cluster.Request) {
	t.Helper()
	l.pages++
	page := fmt.Sprint("page ", l.pages)
	l.last.hub.edit(t, annotate("example.com/page", page))
	l.last.spoke.becomes(t, annotated("example.com/page", page))
	l.last.report(t, page)
	return l.read(t, l.last.hub, l.hub), l.read(t, l.last.spoke, l.spoke)
}

// read returns what was asked on one side until what the last Application costs, which is left out.
func (l *ledger) read(t *testing.T, last side, mark int64) []cluster.Request {
	t.Helper()
	at := last.selection
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, last.cluster.APIServer.WaitLogFrom(ctx, mark, fmt.Sprintf(`"namespace":%q,"name":%q`, at.Namespace, at.Name)))
	requests, err := last.cluster.Requests(mark)
	require.NoError(t, err)
	return slices.DeleteFunc(requests, func(r cluster.Request) bool {
		elsewhere := last.cluster == l.site.spoke && r.Namespace != l.site.name // another agent's
		return elsewhere || r.Name == at.Name
	})
}

// report gives the Application a status on its spoke, as its controller would, and waits until the hub has it.
func (a *twin) report(t *testing.T, revision string) {
	t.Helper()
	a.spoke.edit(t, func(o *unstructured.Unstructured) {
		set(o, "Synced", "status", "sync", "status")
		set(o, revision, "status", "sync", "revision")
	})
	a.hub.becomes(t, has(revision, "status", "sync", "revision"))
}

// What goes on all day on thousands of Applications costs the API servers what it must: a change of a status is one write on
// the hub, and nothing is read. A connection that comes back costs nothing, a restart no more than the lists with which
// watches may begin.
func TestSteadyStateCostsNoMoreThanItMust(t *testing.T) {
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "frugal", lab.AgentOptions{Principal: principal}).connected(t)
	var apps []*twin
	for range 3 {
		a := s.newTwin("steady").create(t)
		a.arrives(t)
		a.report(t, "the first")
		apps = append(apps, a)
	}
	ledger := s.ledger(t)

	t.Run("a status", func(t *testing.T) {
		const changes = 5
		ledger.open()
		var want []cluster.Request
		for i := range changes {
			for _, a := range apps {
				a.report(t, fmt.Sprint(i))
				want = append(want, cluster.Request{
					User: lab.PrincipalUser, Verb: "patch",
					Resource: "applications", Namespace: s.name, Name: a.declared.Name,
				})
			}
		}
		hub, spoke := ledger.close(t)
		require.Equal(t, want, hub)
		require.Empty(t, spoke)
	})
	t.Run("a connection that comes back", func(t *testing.T) {
		ledger.open()
		mark := s.agent.Mark()
		s.agent.Principal.Reset()
		saysNow(t, s.agent, mark, lab.ConnectedAgentLine)
		hub, spoke := ledger.close(t)
		require.Empty(t, hub)
		require.Empty(t, spoke)
	})
	t.Run("a restart", func(t *testing.T) {
		ledger.open()
		require.NoError(t, principal.Restart(t.Context()))
		require.NoError(t, s.agent.Restart(t.Context()))
		s.connected(t)
		hub, spoke := ledger.close(t)
		requireLists(t, hub)
		requireLists(t, spoke)
	})
}

// requireLists fails unless all that was asked are lists, of each kind one, and who the principal is, which it asks once.
func requireLists(t *testing.T, requests []cluster.Request) {
	t.Helper()
	seen := make(map[cluster.Request]bool)
	for _, r := range requests {
		if r.Name != "argocd-agent-principal-identity" {
			require.Equal(t, "list", r.Verb, "%s", r)
		}
		require.False(t, seen[r], "%s, twice", r)
		seen[r] = true
	}
}
