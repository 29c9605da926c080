package main

import (
	"errors"
	"sync/atomic"

	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/spoke"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/namespaces"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// sharingSettings are what an operator decides about what is shared with the hub.
type sharingSettings struct {
	mode             string
	byDestination    bool
	createNamespaces bool
	allowed          []string
	selector         string
	ignoreUnmanaged  bool
	adoption         string
	mismatch         string
	recreate         string

	refuseIntentSources bool
	allowOwnNamespace   bool
}

func (s *sharingSettings) declare(set *settings.Set) {
	set.String(&s.mode, "agent-mode", "ARGOCD_AGENT_MODE", string(facets.Managed),
		"managed: applications are defined on the hub; autonomous: they are defined here, and the hub shows them", settings.OneOf(facets.Modes()...))
	set.Bool(&s.byDestination, "destination-based-mapping", "ARGOCD_AGENT_DESTINATION_BASED_MAPPING", false,
		"Applications are in the same namespaces as on the hub, instead of all in Argo CD's; set it on the principal too")
	set.Bool(&s.createNamespaces, "create-namespace", "ARGOCD_AGENT_CREATE_NAMESPACE", false,
		"create the namespace of an Application that is missing; with destination-based mapping")
	set.Strings(&s.allowed, "allowed-namespaces", "ARGOCD_AGENT_ALLOWED_NAMESPACES", nil,
		"namespaces, besides Argo CD's, that the hub's Applications may be in, as globs or /regular expressions/; with destination-based mapping",
		namespaces.Check)
	set.String(&s.selector, "label-selector", "ARGOCD_AGENT_LABEL_SELECTOR", "",
		"share only objects with these labels; set it on the principal too", facets.CheckSelector)
	set.Bool(&s.ignoreUnmanaged, "ignore-unmanaged-apps", "ARGOCD_AGENT_IGNORE_UNMANAGED_APPS", false,
		"is accepted and changes nothing: a managed agent leaves Applications alone that are not the hub's")
	set.String(&s.adoption, "adoption-policy", "ARGOCD_AGENT_ADOPTION_POLICY", facets.AdoptAlways,
		"whether an Application, a project or GPG keys that are here already become the hub's of the same name: always or never",
		settings.OneOf(facets.AdoptAlways, facets.AdoptNever))
	set.String(&s.mismatch, "source-uid-mismatch-policy", "ARGOCD_AGENT_SOURCE_UID_MISMATCH_POLICY", facets.MismatchRecreate,
		"what to do with an Application that was made from one on the hub that is no more, when there is another of its name: "+
			"recreate it without touching its resources, or upsert, change it in place",
		settings.OneOf(facets.MismatchRecreate, facets.MismatchUpsert))
	set.String(&s.recreate, "on-application-recreate", "ARGOCD_AGENT_ON_APPLICATION_RECREATE", facets.RecreateIgnore,
		"what to do after an Application that somebody deleted here was created again: ignore, clear-status or resync",
		settings.OneOf(facets.RecreateIgnore, facets.RecreateClearStatus, facets.RecreateResync))
	set.Bool(&s.refuseIntentSources, "refuse-intent-sources", "ARGOCD_AGENT_REFUSE_INTENT_SOURCES", false,
		"refuse a sync or rollback that the hub asks for with manifests or sources other than the Application's own; with --agent-mode=autonomous")
	set.Bool(&s.allowOwnNamespace, "allow-own-namespace", "ARGOCD_AGENT_ALLOW_OWN_NAMESPACE", false,
		"let the hub's Applications deploy into the agent's own namespace too, where its policy, its Deployment and Argo CD's settings are")
	set.Rule(func() error {
		if s.refuseIntentSources && s.mode != string(facets.Autonomous) {
			return errors.New("set --refuse-intent-sources only with --agent-mode=autonomous: the Applications of a managed agent are the hub's")
		}
		return nil
	}, "refuse-intent-sources", "agent-mode")
	set.Rule(func() error {
		if !s.byDestination && (s.createNamespaces || len(s.allowed) > 0) {
			return errors.New("set --create-namespace and --allowed-namespaces only with --destination-based-mapping")
		}
		return nil
	}, "destination-based-mapping", "create-namespace", "allowed-namespaces")
}

// mapping says where the hub's Applications are.
func (s *sharingSettings) mapping(namespace string) mapping.Mapping {
	if !s.byDestination {
		return mapping.ByNamespace{Spoke: namespace}
	}
	allowed, _ := namespaces.Parse(s.allowed) // which was checked
	return mapping.ByDestination{Spoke: namespace, Allowed: allowed.Has}
}

// closedNamespace is the one that the hub's Applications may not deploy into, empty if there is none. What is in the agent's own
// decides what the hub may do here.
func (s *sharingSettings) closedNamespace(own string) string {
	if s.allowOwnNamespace {
		return ""
	}
	return own
}

// applicationNamespace is that of the Applications that are followed, empty for all. With destination-based
// mapping the hub has Applications for a managed agent in many.
func (s *sharingSettings) applicationNamespace(namespace string) string {
	if s.byDestination && s.mode == string(facets.Managed) {
		return ""
	}
	return namespace
}

// adoptionPolicy says how the hub's Applications are kept.
func (s *sharingSettings) adoptionPolicy(client typed.CoreV1Interface, hub *hubIdentity) facets.AdoptionPolicy {
	k := facets.AdoptionPolicy{Adoption: s.adoption, Mismatch: s.mismatch, Recreate: s.recreate, Origin: hub.uid, Agent: hub.agent}
	k.CreateNamespace = namespaces.Creator{
		Client: client, Allowed: func(string) bool { return s.createNamespaces },
		Hint: "create it on the spoke, or let the agent: see --create-namespace",
	}.Create
	return k
}

// hubIdentity is what the hub last said of itself and of the agent.
type hubIdentity struct{ last atomic.Pointer[wire.Hello] }

// listener returns what is called with each hello of the hub's. The spoke has to be known by then.
func (h *hubIdentity) listener(s *spoke.Spoke) func(wire.Hello) {
	return func(theirs wire.Hello) {
		h.last.Store(&theirs)
		s.ReportOthers()
	}
}

// uid returns what the hub is known by, empty if it said nothing of that.
func (h *hubIdentity) uid() string {
	if last := h.last.Load(); last != nil {
		return last.Hub
	}
	return ""
}

// agent returns the name by which the hub knows the agent.
func (h *hubIdentity) agent() string {
	if last := h.last.Load(); last != nil {
		return last.Agent
	}
	return ""
}
