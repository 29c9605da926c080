package facets

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// Spoke is a spoke's cluster.
type Spoke struct{ *Cluster }

// Share returns what the spoke shares with the hub.
func (s Spoke) Share(mode Mode) Share {
	if mode == Autonomous {
		return s.counted(s.autonomous())
	}
	return s.counted(s.managed())
}

// Others returns how many replica objects on a managed agent's spoke are for other agents, by their names, and how many of this agent's
// are from other hubs, by what those are known by. There are none as long as the hub has not said its own and this agent's name.
func (s Spoke) Others() (agents, hubs map[string]int) {
	agents, hubs = make(map[string]int), make(map[string]int)
	note := func(h *argocd.Head) {
		switch theirs := s.options.AdoptionPolicy.otherAgent(h); {
		case theirs != "":
			agents[theirs]++
		case h.SourceUID() != "" && s.options.AdoptionPolicy.isOtherHubs(h):
			hubs[h.Annotations[argocd.AnnotationPrincipalUID]]++
		}
	}
	for app := range s.Store.All() {
		note(&app.Head)
	}
	for _, records := range []Records{s.Projects, s.Secrets, s.ConfigMaps} {
		for r := range records.Store.All() {
			note(&r.Head)
		}
	}
	return agents, hubs
}

func (s Spoke) managed() Share {
	side := spokeSide(s.Applications, s.options.Mapping, false)
	side.adoption = s.options.AdoptionPolicy
	intents, applications := newIntentReplica(side), newApplicationReplica(side, s.options.AdoptionPolicy)
	applications.check, applications.pruned = s.checkTarget, s.options.Reporter.Pruned
	replicas := map[converge.Facet]converge.ReplicaConfig{
		Application: retained(applications),
		Intent:      {Replica: intents},
		AppProject:  retained(s.projects()),
		GPGKeys:     retained(s.keys()),
	}
	secrets := newSourceRefs() // a Secret may go over from one facet to the other
	for use, facet := range credentials() {
		replicas[facet] = retained(s.credentials(use, secrets))
	}
	return Share{
		Sources: statuses(statusSource{Side: side, report: s.options.Reporter.StatusRefusedByHub}), Replicas: replicas,
		application: side, intents: &intents, replica: &applications,
		records: map[Kind]func(*argocd.Record) []Touched{
			Project: touches(AppProject, named), Secret: touchesCredentials, ConfigMap: touches(GPGKeys, named),
		},
	}
}

// statuses is the status facet. A status that is deleted is computed again by the controllers, so the deletion guard need
// not hold it.
func statuses(s statusSource) map[converge.Facet]converge.SourceConfig {
	return map[converge.Facet]converge.SourceConfig{Status: {Source: s, GuardExempt: true}}
}

// replicaObjects are objects of the hub's, under the same names. The rule says what they may be: the hub is not asked.
func (s Spoke) replicaObjects(r Records, rule argocd.Rule) objectReplica {
	return objectReplica{
		Records: r, namespace: s.options.Namespace, sourceRefs: newSourceRefs(), name: sameName, keyOf: named,
		render:   func(_ converge.Key, c argocd.Content) (argocd.Content, error) { return rule(c) },
		adoption: s.options.AdoptionPolicy,
	}
}

// credentials are the hub's Secrets of one use. None takes the name of a Secret that Argo CD or an agent reads by its name.
func (s Spoke) credentials(use string, secrets *sourceRefs) objectReplica {
	r := s.replicaObjects(s.Secrets, argocd.SharedSecret(use))
	r.sourceRefs, r.secretType = secrets, use
	r.name = func(key converge.Key) (string, error) {
		if s.isSettingsSecret(string(key)) {
			return "", fmt.Errorf("a Secret called %q is one that Argo CD or its agent takes its own settings from: give this one another name", key)
		}
		return string(key), nil
	}
	r.keyOf = func(record *argocd.Record) (converge.Key, bool) {
		return converge.Key(record.Name.Name), !s.isSettingsSecret(record.Name.Name)
	}
	return r
}

func (s Spoke) isSettingsSecret(name string) bool {
	return argocd.IsSettingsSecret(name) || slices.Contains(s.options.OwnSecrets, name)
}

// projects are the hub's. The project default stays as it is when it is withdrawn: Argo CD makes it when it starts, and
// Applications that name no project are in it, also the spoke's own.
func (s Spoke) projects() objectReplica {
	r := s.replicaObjects(s.Projects,
		argocd.HubsProject(s.options.ClosedNamespace, s.options.Mapping.Name() != mapping.ByNamespace{}.Name()))
	r.adopt, r.closed = true, s.options.ClosedNamespace
	r.detach = map[converge.Key]func(*argocd.Record) argocd.Patch{argocd.DefaultProject: detachPatch}
	return r
}

// checkTarget returns why an application of the hub's may not be here for where it deploys, nil if it may. In a project of the hub's
// Argo CD itself denies the closed namespace. A project of the spoke's own may become one of the hub's, so that is waited for.
func (s Spoke) checkTarget(d argocd.Definition) error {
	closed := s.options.ClosedNamespace
	if closed == "" {
		return nil
	}
	target, err := argocd.ReadTarget(d.Spec)
	if err != nil {
		return fmt.Errorf("%w: %w", converge.ErrRefused, err)
	}
	if target.Namespace == closed {
		return fmt.Errorf("%w: its destination is namespace %q, where the spoke's Argo CD and its agent are, and which is closed to the hub: "+
			"choose another one, or have the agent run with --allow-own-namespace", converge.ErrRefused, closed)
	}
	project, ok := s.Projects.Store.Get(types.NamespacedName{Namespace: s.options.Namespace, Name: target.Project})
	if ok && project.PermitsOnSpoke(closed) {
		return fmt.Errorf("its project %q on the spoke permits namespace %q, where the spoke's Argo CD and its agent are, and which is closed to the hub: "+
			"let the hub share its project of that name with this agent, which takes the annotation %s: %s on the spoke's if the agent's "+
			"--adoption-policy is %s; or deny the namespace in the spoke's, or have the agent run with --allow-own-namespace",
			target.Project, closed, annotationAdoption, AdoptAlways, AdoptNever)
	}
	return nil
}

// keys are the hub's GPG keys. Argo CD's repository server does not start without their ConfigMap, so one that is withdrawn
// is emptied. There is no other ConfigMap that a hub may write: in others are Argo CD's settings, and the agent's policy.
func (s Spoke) keys() objectReplica {
	r := s.replicaObjects(s.ConfigMaps, argocd.SharedKeys)
	r.adopt = true
	r.name = func(key converge.Key) (string, error) {
		if key != argocd.KeysConfigMap {
			return "", fmt.Errorf("there is one ConfigMap of GPG keys, %q, and no other is shared: rename %q", argocd.KeysConfigMap, key)
		}
		return argocd.KeysConfigMap, nil
	}
	r.keyOf = func(record *argocd.Record) (converge.Key, bool) {
		return argocd.KeysConfigMap, record.Name.Name == argocd.KeysConfigMap
	}
	r.detach = map[converge.Key]func(*argocd.Record) argocd.Patch{argocd.KeysConfigMap: func(record *argocd.Record) argocd.Patch {
		patch := detachPatch(record)
		content := record.Content()
		if content.Data != nil {
			patch.Remove("data")
		}
		if content.BinaryData != nil {
			patch.Remove("binaryData")
		}
		return patch
	}}
	return r
}

func (s Spoke) autonomous() Share {
	side := spokeSide(s.Applications, s.options.Mapping.Autonomous(), true)
	side.selector = s.options.Selector
	intents := newIntentReplica(side)
	intents.toHub, intents.refuseSources = s.ToHub, s.options.RefuseIntentSources
	sources := statuses(statusSource{Side: side, toHub: s.ToHub, report: s.options.Reporter.StatusRefusedByHub})
	sources[Application] = converge.SourceConfig{Source: applicationSource{Side: side, mirrored: true}, OnlyShown: true}
	sources[AppProject] = converge.SourceConfig{OnlyShown: true, Source: objectSource{
		Records: s.Projects, namespace: s.options.Namespace, report: s.reports("", Project),
		offer: func(r *argocd.Record) ([]byte, converge.Version, bool) { return s.offer(r, argocd.SharedProject, true) },
	}}
	return Share{
		Sources: sources, Replicas: map[converge.Facet]converge.ReplicaConfig{Intent: {Replica: intents}},
		application: side, intents: &intents,
		records: map[Kind]func(*argocd.Record) []Touched{Project: touches(AppProject, named)},
	}
}

// ToHub maps the namespace of an autonomous agent's applications to the one on the hub.
func (s Spoke) ToHub() argocd.Move {
	return argocd.Move{From: s.options.Namespace, To: s.options.Agent()}
}
