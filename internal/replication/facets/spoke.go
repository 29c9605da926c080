package facets

import (
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
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

func (s Spoke) managed() Share {
	side := spokeSide(s.Applications, s.options.Mapping, false)
	intents, applications := newIntentReplica(side), newApplicationReplica(side, s.options.AdoptionPolicy)
	replicas := map[converge.Facet]converge.ReplicaConfig{
		Application: retained(applications),
		Intent:      {Replica: intents},
		AppProject:  retained(s.projects()),
		GPGKeys:     retained(s.keys()),
	}
	secrets := newSourceRefs() // a Secret may go over from one facet to the other
	for use, facet := range credentials() {
		replicas[facet] = retained(s.replicaObjects(s.Secrets, use, secrets, false))
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

// replicaObjects are objects of the hub's, under the same names and as they were sent. secretType is empty but for Secrets.
func (s Spoke) replicaObjects(r Records, secretType string, o *sourceRefs, adopt bool) objectReplica {
	return objectReplica{
		Records: r, namespace: s.options.Namespace, sourceRefs: o, name: sameName, keyOf: named, secretType: secretType, render: asIs, adopt: adopt,
		adoption: s.options.AdoptionPolicy,
	}
}

// projects are the hub's. The project default stays as it is when it is withdrawn: Argo CD makes it when it starts, and
// Applications that name no project are in it, also the spoke's own.
func (s Spoke) projects() objectReplica {
	r := s.replicaObjects(s.Projects, "", newSourceRefs(), true)
	r.detach = map[converge.Key]func(*argocd.Record) argocd.Patch{argocd.DefaultProject: detachPatch}
	return r
}

// keys are the hub's GPG keys. Argo CD's repository server does not start without their ConfigMap, so one that is withdrawn
// is emptied.
func (s Spoke) keys() objectReplica {
	r := s.replicaObjects(s.ConfigMaps, "", newSourceRefs(), true)
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
	intents.toHub = s.ToHub
	sources := statuses(statusSource{Side: side, toHub: s.ToHub, report: s.options.Reporter.StatusRefusedByHub})
	sources[Application] = converge.SourceConfig{Source: applicationSource{Side: side, mirrored: true}}
	sources[AppProject] = converge.SourceConfig{Source: objectSource{
		Records: s.Projects, namespace: s.options.Namespace, report: s.reports("", Project),
		offer: func(r *argocd.Record) ([]byte, converge.Version, bool) { return s.offer(r, true) },
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
