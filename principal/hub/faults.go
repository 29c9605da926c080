package hub

import (
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
)

// explainRecord tells people, once for each change, of an object that goes to no agent and may be meant to.
func (h *Hub) explainRecord(kind facets.Kind, old, now *argocd.Record) {
	if now == nil || !h.cluster.Selects(&now.Head) {
		return
	}
	switch kind {
	case facets.Secret:
		if fault := now.SecretFault(); fault != "" && (old == nil || old.SecretFault() != fault) {
			h.options.Logger.Warn("A Secret goes to no agent", "name", now.Name.Name, "reason", fault)
		}
	case facets.Project:
		if (old == nil || old.Held() != now.Held()) && h.isForNobody(now) {
			h.options.Logger.Info("A project goes to none of the agents that have connected: look at its destinations and sourceNamespaces "+
				"if it should", "name", now.Name.Name)
		}
	case facets.ConfigMap:
	}
}

// isForNobody reports whether there are managed agents, and a project is for none of them. What shows an agent's own project
// is not meant to be for any.
func (h *Hub) isForNobody(project *argocd.Record) bool {
	some := false
	for _, share := range h.all() {
		if origin, managed := share.Sources[facets.AppProject]; managed {
			some = true
			if _, is := origin.Project(converge.Key(project.Name.Name)); is {
				return false
			}
		}
	}
	return some && project.Annotations[argocd.AnnotationAgent] == ""
}
