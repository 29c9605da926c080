package hub

import "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"

// Directory takes which of the hub's applications belong to which agent. Applications are known by their instances, which
// are their names in Argo CD's Redis keys.
type Directory interface {
	// SetNamespace records the namespace on the hub whose applications all belong to an agent, empty if there is none.
	SetNamespace(agent, namespace string)
	// Assign records that an application is meant for an agent, and what its instance is called on the spoke.
	Assign(instance, agent, spokeInstance string)
	// Unassign records that an application is meant for no agent.
	Unassign(instance string)
	// SetComplete says that everything was recorded that was there before the start.
	SetComplete()
}

// assign records in the directory to which agent an application belongs, or that it is gone, unless namespaces say so for
// all applications.
func (h *Hub) assign(app *argocd.App, exists bool) {
	agent, allowed := h.options.Mapping.Agent(app.Name, app.Destination())
	if h.options.Mapping.HubNamespace(agent) != "" {
		return
	}
	instance := argocd.Instance(app.Name, h.options.Namespace)
	if !exists || agent == "" || !allowed || app.Annotations[argocd.AnnotationAgent] != "" || !h.cluster.Selects(&app.Head) {
		h.options.Directory.Unassign(instance)
		return
	}
	h.options.Directory.Assign(instance, agent, h.options.Mapping.Instance(h.options.Mapping.FromHub(app.Name)))
}
