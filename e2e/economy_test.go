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

// requestCounter counts the API requests of principals and of a site's agent. It counts those of other tests too, so a test
// that uses it runs alone.
type requestCounter struct {
	site       *site
	last       *twin // goes both ways after all that is counted, to show that nothing more is to come
	pages      int
	hub, spoke int64 // where the API servers' logs were when the page was opened
}

// countRequests starts to count, with an Application that the caller need not delete.
func (s *site) countRequests(t *testing.T, last *twin) *requestCounter {
	t.Helper()
	l := &requestCounter{site: s, last: last}
	l.close(t)
	return l
}

// open begins a new page.
func (l *requestCounter) open() {
	l.hub, l.spoke = shared.Hub.APIServer.Mark(), l.site.spoke.APIServer.Mark()
}

// close returns what was asked since the page was opened.
func (l *requestCounter) close(t *testing.T) (hub, spoke []cluster.Request) {
	t.Helper()
	l.pages++
	l.last.hub.edit(t, annotate(refreshAnnotation, "normal"))
	l.last.spoke.becomes(t, annotated(refreshAnnotation, "normal"))
	l.last.spoke.edit(t, annotate(refreshAnnotation, "")) // as a controller that begins
	l.last.report(t, fmt.Sprint("page ", l.pages))
	l.last.hub.becomes(t, annotated(refreshAnnotation, ""))
	return l.read(t, l.last.hub, l.hub), l.read(t, l.last.spoke, l.spoke)
}

// read returns what was asked on one side up to the requests about the last Application, and leaves those out.
func (l *requestCounter) read(t *testing.T, last side, mark int64) []cluster.Request {
	t.Helper()
	at := last.selection
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, last.cluster.APIServer.WaitLogFrom(ctx, mark, fmt.Sprintf(`"namespace":%q,"name":%q`, at.Namespace, at.Name)))
	requests, err := last.cluster.Requests(mark)
	require.NoError(t, err)
	return slices.DeleteFunc(requests, func(r cluster.Request) bool {
		// Another agent's are in its own namespace; what is asked of all namespaces would be this one's.
		elsewhere := last.cluster == l.site.spoke && r.Namespace != "" && r.Namespace != l.site.name && r.User != lab.WideAgentUser
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
func TestSteadyStateAPIRequests(t *testing.T) {
	for mode, share := range sharing() {
		t.Run(mode, func(t *testing.T) {
			principal := newPrincipal(t, lab.PrincipalOptions{})
			s := newSite(t, "frugal", lab.AgentOptions{Principal: principal, Mode: mode}).connected(t)
			s.costs(t, principal, mode, func(name string) *twin { return share(t, s, name) })
		})
	}
	t.Run("managed by destination", func(t *testing.T) {
		f := newFederation(t)
		s := f.newSite(t, "frugal", lab.AgentOptions{})
		team := f.team(t, "frugal", s)
		s.costs(t, f.principal, "managed", func(name string) *twin {
			app := s.within(team, name).create(t)
			app.arrives(t)
			return app
		})
	})
}

// costs fails if the site costs more than it must, with Applications that somebody makes.
func (s *site) costs(t *testing.T, principal *lab.Principal, mode string, share func(name string) *twin) {
	t.Helper()
	s.furnish(t, mode)
	var apps []*twin
	for range 3 {
		apps = append(apps, share("steady"))
	}
	countRequests := s.countRequests(t, share("last"))
	countRequests.statuses(t, apps)
	countRequests.reconnect(t)
	countRequests.restart(t, principal)
}

// furnish gives the site a project, and a managed one a repository's credentials too.
func (s *site) furnish(t *testing.T, mode string) {
	t.Helper()
	name := unique("frugal")
	hub := project(shared.Hub, lab.Namespace, name)
	spoke := project(s.spoke, s.name, name)
	if mode == "autonomous" {
		spoke.declare(t, "AppProject", projectFor(s.name))
		hub.selection.Name = s.name + "-" + name
		hub.becomes(t)
		return
	}
	hub.declare(t, "AppProject", projectFor(s.name))
	spoke.becomes(t)
	core(shared.Hub, "secrets", lab.Namespace, name).declare(t, "Secret", repository(name), label(secretType, "repository"))
	core(s.spoke, "secrets", s.name, name).becomes(t)
}

// statuses has each Application report several statuses.
func (l *requestCounter) statuses(t *testing.T, apps []*twin) {
	t.Helper()
	l.open()
	var want []cluster.Request
	for i := range 5 {
		for _, a := range apps {
			a.report(t, fmt.Sprint("turn ", i))
			want = append(want, cluster.Request{
				User: lab.PrincipalUser, Verb: "patch",
				Resource: "applications", Namespace: a.declared.Namespace, Name: a.declared.Name,
			})
		}
	}
	hub, spoke := l.close(t)
	require.Equal(t, want, hub)
	require.Empty(t, spoke)
}

func (l *requestCounter) reconnect(t *testing.T) {
	t.Helper()
	l.open()
	mark := l.site.agent.Mark()
	l.site.agent.Principal.Reset()
	saysNow(t, l.site.agent, mark, lab.ConnectedAgentLine)
	hub, spoke := l.close(t)
	require.Empty(t, hub)
	require.Empty(t, spoke)
}

func (l *requestCounter) restart(t *testing.T, principal *lab.Principal) {
	t.Helper()
	l.open()
	require.NoError(t, principal.Restart(t.Context()))
	require.NoError(t, l.site.agent.Restart(t.Context()))
	l.site.connected(t)
	hub, spoke := l.close(t)
	requireLists(t, hub)
	requireLists(t, spoke)
}

// requireLists fails unless all that was asked are lists, of each kind one, and who the principal is, and which Kubernetes the spoke runs,
// which are asked once.
func requireLists(t *testing.T, requests []cluster.Request) {
	t.Helper()
	seen := make(map[cluster.Request]bool)
	for _, r := range requests {
		verb := "list"
		version := r.Resource == "" && r.Name == "" // of Kubernetes, for the hub to show
		if version || r.Name == "argocd-agent-principal-identity" {
			verb = "get"
		}
		require.Equal(t, verb, r.Verb, "%s", r)
		require.False(t, seen[r], "%s, twice", r)
		seen[r] = true
	}
}
