package hub

import (
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// explainRecord logs, once for each change, of an object that goes to no agent and may be meant to.
func (h *Hub) explainRecord(kind facets.Kind, old, now *argocd.Record) {
	if now == nil {
		if kind == facets.Project {
			h.explainOrphans(h.cluster.Secrets.Store.Group(old.Name.Name))
		}
		return
	}
	if !h.cluster.Selects(&now.Head) {
		return
	}
	switch kind {
	case facets.Secret:
		h.explainSecret(old, now)
	case facets.Project:
		if (old == nil || old.AppliedVersion() != now.AppliedVersion()) && h.isForNobody(now) {
			logger := h.options.Logger.With("name", now.Name.Name)
			if err := now.ProjectFault(); err != nil {
				logger = logger.With("error", err)
			}
			logger.Info("AppProject matches no connected agent; check its destinations and sourceNamespaces")
		}
	case facets.ConfigMap:
	}
}

// explainSecret logs why a Secret matches no agent, or that its project does not exist.
func (h *Hub) explainSecret(old, now *argocd.Record) {
	fault, before, project := now.SecretFault(), "", ""
	if old != nil {
		before, project = old.SecretFault(), old.SecretProject()
	}
	switch {
	case fault != "" && fault != before:
		h.options.Logger.Warn("Repository Secret matches no agent", "name", now.Name.Name, "reason", fault)
	case fault == "" && (before != "" || project != now.SecretProject()):
		h.explainOrphans(slices.Values([]*argocd.Record{now}))
	}
}

// explainOrphans logs the Secrets whose project does not exist, once all projects are known. The project may be
// about to come, so this is no warning.
func (h *Hub) explainOrphans(secrets iter.Seq[*argocd.Record]) {
	if !h.unmanaged.isStarted() {
		return
	}
	for r := range secrets {
		project := r.SecretProject()
		if _, is := h.cluster.Projects.Store.Get(types.NamespacedName{Namespace: h.options.Namespace, Name: project}); is ||
			r.SecretFault() != "" || !h.cluster.Selects(&r.Head) {
			continue
		}
		h.options.Logger.Info("Repository Secret matches no agent", "name", r.Name.Name,
			"reason", fmt.Sprintf("there is no project %q: create it, or correct the Secret's project", project))
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
