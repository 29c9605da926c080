package hub

import (
	"iter"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Namespace returns the namespace on the hub whose applications are all an agent's, empty if there is none.
func (h *Hub) Namespace(agent string) string {
	if share, ok := h.share(agent); ok {
		return share.Namespace
	}
	return h.cluster.NamespaceOf(agent)
}

// Instances yields the applications that are meant for an agent, as Argo CD calls them in Redis.
func (h *Hub) Instances(agent string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for app := range h.cluster.Store.Group(agent) {
			if !yield(h.instance(app)) {
				return
			}
		}
	}
}

// Assigned returns whose an application is, by its instance, and what it is called on the spoke. The agent is empty if it is
// no agent's, or if its namespace alone tells.
func (h *Hub) Assigned(instance string) (agent, spokeInstance string) {
	app, ok := h.cluster.Store.Get(argocd.ParseInstance(instance, h.options.Namespace))
	if !ok {
		return "", ""
	}
	agent, allowed := h.options.Mapping.Agent(app.Name, app.Destination())
	if !allowed || app.Annotations[argocd.AnnotationAgent] != "" || !h.cluster.Selects(&app.Head) || h.Namespace(agent) != "" {
		return "", ""
	}
	return agent, h.options.Mapping.Instance(h.options.Mapping.FromHub(app.Name))
}

func (h *Hub) instance(app *argocd.App) string { return argocd.Instance(app.Name, h.options.Namespace) }

// moved tells that an application appeared (old is nil), is meant for another agent, or went (now is nil), unless namespaces
// tell whose it is.
func (h *Hub) moved(old, now *argocd.App) {
	var agents []string
	var instance string
	for _, app := range []*argocd.App{old, now} {
		if app == nil {
			continue
		}
		instance = h.instance(app)
		if agent := h.agentOf(app); agent != "" && h.Namespace(agent) == "" {
			agents = append(agents, agent)
		}
	}
	if len(agents) > 0 {
		h.listener.Reassigned(instance, agents...)
	}
}
