package facets

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// Hub is the hub's cluster.
type Hub struct {
	*Cluster

	// Server returns the address of an agent's cluster in Argo CD, empty if it has none.
	Server func(agent string) string
	// HasAgent reports whether the hub knows an agent of that name; nil if it knows none.
	HasAgent func(agent string) bool
	// Collateral knows which objects of the hub went with their namespace, or with the definition of their kind; nil if nobody does.
	Collateral converge.Collateral
}

// Share returns what the hub shares with an agent.
func (h Hub) Share(agent string, mode Mode) Share {
	share := h.withManaged
	if mode == Autonomous {
		share = h.withAutonomous
	}
	return h.counted(h.ordered(share(agent)))
}

// ordered has an agent that comes from another principal of the hub see nothing go back, though each has a cache of its own; and lose
// nothing that such a cache lacks.
func (h Hub) ordered(share Share) Share {
	application := func(key converge.Key) (types.NamespacedName, bool) {
		id, err := share.application.place(key)
		return id, err == nil && canBe(id)
	}
	for facet, source := range share.Sources {
		switch facet {
		case Application, Intent:
			source.Revision, source.Reach = h.Store.Revision, h.Store.Reach
			source.Confirm = confirms(source, h.Applications, application)
		case AppProject:
			source.Revision, source.Reach = h.Projects.Store.Revision, h.Projects.Store.Reach
			source.Confirm = confirms(source, h.Projects, h.inNamespace)
		case GPGKeys:
			source.Revision, source.Reach = h.ConfigMaps.Store.Revision, h.ConfigMaps.Store.Reach
			source.Confirm = confirms(source, h.ConfigMaps, h.inNamespace)
		default: // credentials
			source.Revision, source.Reach = h.Secrets.Store.Revision, h.Secrets.Store.Reach
			source.Confirm = h.confirmCredentials(source)
		}
		share.Sources[facet] = source
	}
	return share
}

// inNamespace is where the object of a key is that has the key's name, false if none can be there.
func (h Hub) inNamespace(key converge.Key) (types.NamespacedName, bool) {
	id := types.NamespacedName{Namespace: h.options.Namespace, Name: string(key)}
	return id, canBe(id)
}

// canBe reports whether an object can be there.
func canBe(id types.NamespacedName) bool {
	return len(validation.IsDNS1123Label(id.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(id.Name)) == 0
}

// confirms returns what asks the API server whether a source has nothing under a key, whose object is at that place.
func confirms[R argocd.Raw, T Kept](source converge.SourceConfig, objects Objects[R, T], place func(converge.Key) (types.NamespacedName, bool),
) func(context.Context, converge.Key, string) (bool, error) {
	return func(ctx context.Context, key converge.Key, _ string) (bool, error) {
		if id, ok := place(key); ok {
			if err := objects.confirm(ctx, id); err != nil {
				return false, err
			}
		}
		_, exists := source.Project(key)
		return !exists, nil
	}
}

// confirmCredentials is confirms for Secrets, about which their projects decide too.
func (h Hub) confirmCredentials(source converge.SourceConfig) func(context.Context, converge.Key, string) (bool, error) {
	secret := confirms(source, h.Secrets, h.inNamespace)
	return func(ctx context.Context, key converge.Key, uid string) (bool, error) {
		nothing, err := secret(ctx, key, uid)
		r, ok := h.Secrets.Store.Get(types.NamespacedName{Namespace: h.options.Namespace, Name: string(key)})
		if err != nil || !nothing || !ok {
			return nothing, err
		}
		if project, ok := h.inNamespace(converge.Key(r.SecretProject())); ok {
			if err := h.Projects.confirm(ctx, project); err != nil {
				return false, err
			}
		}
		_, exists := source.Project(key)
		return !exists, nil
	}
}

func (h Hub) withManaged(agent string) Share {
	side := hubSide(h.Applications, h.options.Mapping, agent, true)
	side.selector = h.options.Selector
	sources := map[converge.Facet]converge.SourceConfig{
		Application: {Source: applicationSource{Side: side}, AccessRevoked: h.isElsewhere(agent, side)},
		Intent:      {Source: intentSource{Side: side}, GuardExempt: true},
		AppProject:  h.projects(agent),
		GPGKeys:     h.keys(agent),
	}
	for use, facet := range credentials() {
		sources[facet] = h.credentials(agent, use)
	}
	for facet, config := range sources {
		config.Collateral = h.Collateral
		sources[facet] = config
	}
	return Share{
		Sources:  sources,
		Replicas: map[converge.Facet]converge.ReplicaConfig{Status: {Replica: h.statuses(side, agent)}},

		Namespace: h.NamespaceOf(agent), application: side,
		records: map[Kind]func(*argocd.Record) []Touched{
			Project: h.touchesProject, Secret: touchesCredentials, ConfigMap: touches(GPGKeys, named),
		},
	}
}

// isElsewhere returns what reports whether the very application that a replica object came from is there, and somebody gave it to
// another agent. It must not be on both spokes.
func (h Hub) isElsewhere(agent string, side Side) func(converge.Key, string) bool {
	return func(key converge.Key, uid string) bool {
		id, err := side.place(key)
		app, ok := h.Store.Get(id)
		if err != nil || !ok || string(app.UID) != uid || !h.Selects(&app.Head) {
			return false
		}
		now, allowed := h.options.Mapping.Agent(app.Name, app.Destination())
		return now != "" && now != agent && allowed
	}
}

// statuses shows an agent's statuses.
func (h Hub) statuses(s Side, agent string) statusReplica {
	return statusReplica{Side: s, refused: func(ctx context.Context, app *argocd.App, reason string) {
		h.options.Reporter.StatusRefusedHere(ctx, agent, app, reason)
	}}
}

// touchesProject finds what the change of a project concerns: it decides about its credentials too.
func (h Hub) touchesProject(r *argocd.Record) []Touched {
	touched := []Touched{{AppProject, converge.Key(r.Name.Name)}}
	for secret := range h.Secrets.Store.Group(r.Name.Name) {
		touched = append(touched, touchesCredentials(secret)...)
	}
	return touched
}

// NamespaceOf returns the namespace on the hub whose applications are all a managed agent's, empty if there is none.
func (h Hub) NamespaceOf(agent string) string { return h.options.Mapping.HubNamespace(agent) }

// recipient is an agent as projects are for it or not.
func (h Hub) recipient(agent string) argocd.Recipient {
	to := argocd.Recipient{Agent: agent, Namespace: h.NamespaceOf(agent)}
	if h.Server != nil {
		to.Server = h.Server(agent)
	}
	return to
}

func (h Hub) projects(agent string) converge.SourceConfig {
	return converge.SourceConfig{Source: objectSource{
		Records: h.Projects, namespace: h.options.Namespace, report: h.reports(agent, Project),
		offer: func(r *argocd.Record) ([]byte, converge.Version, bool) {
			if !h.shares(r) {
				return nil, converge.Version{}, false
			}
			return r.EncodedForAgent(h.recipient(agent))
		},
	}}
}

// shares reports whether a project is one that managed agents may have. What shows an autonomous agent's project is not: it
// says what that agent's users may do on the hub.
func (h Hub) shares(project *argocd.Record) bool {
	return h.Selects(&project.Head) && project.Annotations[argocd.AnnotationAgent] == ""
}

// credentials are the Secrets of one use that belong to projects of an agent.
func (h Hub) credentials(agent, use string) converge.SourceConfig {
	rule := argocd.SharedSecret(use)
	return converge.SourceConfig{Source: objectSource{
		Records: h.Secrets, namespace: h.options.Namespace, report: h.reports(agent, Secret),
		offer: func(r *argocd.Record) ([]byte, converge.Version, bool) {
			if r.SecretType() != use {
				return nil, converge.Version{}, false
			}
			project, ok := h.Projects.Store.Get(types.NamespacedName{Namespace: h.options.Namespace, Name: r.SecretProject()})
			return h.offer(r, rule, ok && h.shares(project) && project.IsFor(h.recipient(agent)))
		},
	}, AccessRevoked: h.accessRevoked}
}

// accessRevoked reports whether the very Secret that a replica object came from is still on the hub, with its project, and both
// are labelled to be shared, or it not to be. So if it is not an agent's any more, somebody decided that, by the Secret, its
// project or the agent's address. What a selector leaves out may be left out by mistake, and a project that is gone be gone by
// one.
func (h Hub) accessRevoked(key converge.Key, uid string) bool {
	r, ok := h.Secrets.Store.Get(types.NamespacedName{Namespace: h.options.Namespace, Name: string(key)})
	switch {
	case !ok || string(r.UID) != uid:
		return false
	case r.Labels[argocd.LabelIgnore] == "true":
		return true
	case r.SecretProject() == "":
		return h.Selects(&r.Head)
	}
	project, ok := h.Projects.Store.Get(types.NamespacedName{Namespace: h.options.Namespace, Name: r.SecretProject()})
	return ok && h.Selects(&r.Head) && h.Selects(&project.Head)
}

func (h Hub) keys(agent string) converge.SourceConfig {
	return converge.SourceConfig{Source: objectSource{
		Records: h.ConfigMaps, namespace: h.options.Namespace, report: h.reports(agent, ConfigMap),
		offer: func(r *argocd.Record) ([]byte, converge.Version, bool) { return h.offer(r, argocd.SharedKeys, true) },
	}}
}

// withAutonomous shows what an agent has, in the namespace of its name. What users do to that is undone by the agent, when it
// is there: of an agent that never comes back, nothing is to come back either.
func (h Hub) withAutonomous(agent string) Share {
	own := h.options.Mapping.Autonomous()
	side := hubSide(h.Applications, own, agent, false)
	adoption := h.options.AdoptionPolicy
	adoption.MirrorOf, adoption.MirrorRules, adoption.IsMirror = agent, h.options.MirrorRules, func(app *argocd.App) bool { return h.isAgents(app, agent) }
	adoption.MayName = func(project string) error { return h.errIfOthers(agent, project) }
	projects := h.mirroredProjects(agent, own)
	return Share{
		Sources: map[converge.Facet]converge.SourceConfig{
			Intent: {Source: intentSource{Side: side}, GuardExempt: true},
		},
		Replicas: map[converge.Facet]converge.ReplicaConfig{
			Application: {Replica: newApplicationReplica(side, adoption)},
			Status:      {Replica: h.statuses(side, agent)},
			AppProject:  {Replica: projects},
		},

		Namespace: own.HubNamespace(agent), application: side,
		records: map[Kind]func(*argocd.Record) []Touched{Project: func(r *argocd.Record) []Touched {
			return h.touchesMirrors(agent, side, projects, r)
		}},
	}
}

// touchesMirrors finds what the change of a project concerns: if it bears a name that a mirror of the agent's may have, also the
// applications that are of the project.
func (h Hub) touchesMirrors(agent string, side Side, projects objectReplica, r *argocd.Record) []Touched {
	touched := touches(AppProject, projects.keyOf)(r)
	if len(touched) == 0 {
		return nil
	}
	for app := range h.Store.Group(agent) {
		if key, ok := side.key(app); ok && app.Project() == r.Name.Name {
			touched = append(touched, Touched{Application, key})
		}
	}
	return touched
}

// ownerOf returns the agent whose projects may have a name on the hub, of those that an agent's may have: "prod-eu-x" could show x of
// the agent prod-eu, and eu-x of prod. It is the agent with the longest name, whoever comes first: no other could be shown otherwise.
func (h Hub) ownerOf(project, agent string) string {
	owner := agent
	for i := len(agent) + 1; h.HasAgent != nil && i < len(project)-1; i++ {
		if project[i] == '-' && h.HasAgent(project[:i]) {
			owner = project[:i]
		}
	}
	return owner
}

// errIfAnothersName returns an error if a name on the hub is for the projects of an agent with a longer name.
func (h Hub) errIfAnothersName(agent, project string) error {
	if owner := h.ownerOf(project, agent); owner != agent {
		return fmt.Errorf("on the hub its project would be %q, and such names are for projects of agent %q: rename the project", project, owner)
	}
	return nil
}

// errIfOthers returns an error if a project by that name on the hub does not show one of the agent's, or would not.
func (h Hub) errIfOthers(agent, project string) error {
	if err := h.errIfAnothersName(agent, project); err != nil {
		return err
	}
	r, ok := h.Projects.Store.Get(types.NamespacedName{Namespace: h.options.Namespace, Name: project})
	if !ok || r.Annotations[argocd.AnnotationAgent] == agent {
		return nil
	}
	return fmt.Errorf("on the hub its project would be %q, which is there and does not show one of agent %s: rename one of the two projects", project, agent)
}

// isAgents reports whether an application is for an agent's cluster and of a project that shows one of the agent's: nobody else's
// is.
func (h Hub) isAgents(app *argocd.App, agent string) bool {
	project, ok := h.Projects.Store.Get(types.NamespacedName{Namespace: h.options.Namespace, Name: app.Project()})
	return ok && app.Destination() == agent && project.Annotations[argocd.AnnotationAgent] == agent
}

// mirroredProjects shows an agent's projects on the hub. Their names begin with the agent's.
func (h Hub) mirroredProjects(agent string, m mapping.OnHub) objectReplica {
	own := map[string]string{argocd.AnnotationAgent: agent}
	keyOf := func(r *argocd.Record) (converge.Key, bool) {
		name, ok := strings.CutPrefix(r.Name.Name, agent+"-")
		return converge.Key(name), ok
	}
	return objectReplica{
		Records: h.Projects, namespace: h.options.Namespace, sourceRefs: newSourceRefs(), ownAnnotations: own,
		rules: h.options.MirrorRules.ID(),
		name: func(key converge.Key) (string, error) {
			if _, err := m.ToHub(agent, key); err != nil {
				return "", err
			}
			return prefixed(agent, string(key))
		},
		keyOf: keyOf,
		takeOver: func(r *argocd.Record) bool {
			theirs := r.Annotations[argocd.AnnotationAgent]
			return theirs != "" && strings.HasPrefix(r.Name.Name, theirs+"-") && h.ownerOf(r.Name.Name, theirs) == agent
		},
		render: func(key converge.Key, c argocd.Content) (argocd.Content, error) {
			if err := h.errIfAnothersName(agent, agent+"-"+string(key)); err != nil {
				return c, err
			}
			return argocd.MirrorProject(agent, h.options.MirrorRules, string(key), c)
		},
	}
}
