package hub

import (
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// maxLogged is how many lines are logged about unmanaged applications at most. Who has more of them knows by then.
const maxLogged = 1000

// unmanaged remembers which unmanaged applications were logged: each namespace and each destination once, with the first of
// its applications.
type unmanaged struct {
	mu      sync.Mutex
	started bool // it is known which agents there are. Guarded by mu, as are all fields below
	logged  map[unmanagedApps]struct{}
}

// unmanagedApps is a namespace that is not shared, or a destination that is no agent.
type unmanagedApps struct{ namespace, destination string }

// first reports whether something was not logged yet, and notes that it is.
func (s *unmanaged) first(what unmanagedApps) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, logged := s.logged[what]
	if logged || !s.started || len(s.logged) == maxLogged {
		return false
	}
	if s.logged == nil {
		s.logged = make(map[unmanagedApps]struct{})
	}
	s.logged[what] = struct{}{}
	return true
}

// hasLogged reports whether something was logged.
func (s *unmanaged) hasLogged(what unmanagedApps) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, logged := s.logged[what]
	return logged
}

// isStarted reports whether it is known which agents there are.
func (s *unmanaged) isStarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// StartupDone says that all that is shared and all agents are known that were there before the start. From then on the log
// says which applications are unmanaged though they look as if they were for an agent, and which Secrets' projects do not exist.
func (h *Hub) StartupDone() {
	h.unmanaged.mu.Lock()
	h.unmanaged.started = true
	h.unmanaged.mu.Unlock()
	for app := range h.cluster.Store.All() {
		h.explainApplication(app)
	}
	h.explainOrphans(h.cluster.Secrets.Store.All())
	h.noteAll()
}

// explainApplication logs that an application is unmanaged, and why.
func (h *Hub) explainApplication(app *argocd.App) {
	agent, allowed := h.options.Mapping.Agent(app.Name, app.Destination())
	switch {
	case agent == "" || app.SourceUID() != "" || !h.cluster.Selects(&app.Head): // the hub's own, or shows an autonomous agent's
	case h.autonomous(agent):
		if h.unmanaged.first(unmanagedApps{namespace: app.Name.Namespace, destination: agent}) {
			h.options.Logger.Info("Ignored Applications of an autonomous agent; define them on its cluster",
				"agent", agent, "application", app.Name.String())
		}
	case !h.isAgent(agent):
		// With mapping by namespace, all other namespaces belong to no agent.
		if h.cluster.NamespaceOf(agent) == "" && h.unmanaged.first(unmanagedApps{destination: agent}) {
			h.options.Logger.Info("Ignored Applications whose destination is no agent",
				"destination", agent, "application", app.Name.String())
		}
	case !allowed:
		if h.unmanaged.first(unmanagedApps{namespace: app.Name.Namespace}) {
			h.options.Logger.Warn("Ignored Applications in a namespace that is not allowed; add it to --allowed-namespaces",
				"namespace", app.Name.Namespace, "application", app.Name.String(), "agent", agent)
		}
	}
}

// logNote logs that no agent gets an application, unless the log says so of its destination.
func (h *Hub) logNote(app *argocd.App, says string) {
	if !h.unmanaged.hasLogged(unmanagedApps{destination: app.Destination()}) {
		h.options.Logger.Warn("No agent gets this Application", "application", app.Name.String(), "reason", says)
	}
}

// autonomous reports whether an agent has connected, and is one whose applications the hub only shows.
func (h *Hub) autonomous(agent string) bool {
	share, connected := h.share(agent)
	_, managed := share.Sources[facets.Application]
	return connected && !managed
}

// isAgent reports whether there is an agent of that name: it has connected, or its cluster is known.
func (h *Hub) isAgent(agent string) bool {
	_, connected := h.share(agent)
	return connected || h.options.Clusters.Server(agent) != ""
}
