package hub

import (
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// maxTold is how much is told of at the most. Who has so many namespaces that are not shared knows by then.
const maxTold = 1000

// strangers are what people were told of that is left alone: each namespace and each destination once, by the first of its
// applications.
type strangers struct {
	mu       sync.Mutex
	surveyed bool // it is known which agents there are. Guarded by mu, as are all fields below
	told     map[stranger]struct{}
}

// stranger is a namespace that is not shared, or a destination that is no agent.
type stranger struct{ namespace, destination string }

// first reports whether something was not told of yet, and is told of now.
func (s *strangers) first(what stranger) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, told := s.told[what]
	if told || !s.surveyed || len(s.told) == maxTold {
		return false
	}
	if s.told == nil {
		s.told = make(map[stranger]struct{})
	}
	s.told[what] = struct{}{}
	return true
}

// begun reports whether people are told.
func (s *strangers) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.surveyed
}

// Survey says that all that is shared and all agents are known that were there before the start. From then on people are told of
// applications that are left alone, though they look as if they were for an agent, and of Secrets whose projects are not there.
func (h *Hub) Survey() {
	h.strangers.mu.Lock()
	h.strangers.surveyed = true
	h.strangers.mu.Unlock()
	for app := range h.cluster.Store.All() {
		h.explainApplication(app)
	}
	h.explainOrphans(h.cluster.Secrets.Store.All())
}

// explainApplication tells people if an application is left alone, and why.
func (h *Hub) explainApplication(app *argocd.App) {
	agent, allowed := h.options.Mapping.Agent(app.Name, app.Destination())
	switch {
	case agent == "" || app.SourceUID() != "" || !h.cluster.Selects(&app.Head): // the hub's own, or shows an autonomous agent's
	case h.autonomous(agent):
		if h.strangers.first(stranger{namespace: app.Name.Namespace, destination: agent}) {
			h.options.Logger.Info("Applications are left alone, as their agent is autonomous: define them on its cluster",
				"agent", agent, "application", app.Name.String())
		}
	case !h.known(agent):
		// Where agents have namespaces of their own, all others are nobody's.
		if h.cluster.NamespaceOf(agent) == "" && h.strangers.first(stranger{destination: agent}) {
			h.options.Logger.Info("Applications are left alone, as their destination is no agent",
				"destination", agent, "application", app.Name.String())
		}
	case !allowed:
		if h.strangers.first(stranger{namespace: app.Name.Namespace}) {
			h.options.Logger.Warn("Applications are left alone, as their namespace is not allowed: add it to --allowed-namespaces",
				"namespace", app.Name.Namespace, "application", app.Name.String(), "agent", agent)
		}
	}
}

// autonomous reports whether an agent has connected, and is one whose applications the hub only shows.
func (h *Hub) autonomous(agent string) bool {
	share, connected := h.share(agent)
	_, managed := share.Sources[facets.Application]
	return connected && !managed
}

// known reports whether there is an agent of that name: it has connected, or its cluster is known.
func (h *Hub) known(agent string) bool {
	_, connected := h.share(agent)
	return connected || h.options.Clusters.Server(agent) != ""
}
