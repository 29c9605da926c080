package verify

import (
	"encoding/json"
	"iter"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// encoded is what an object comes to.
type encoded interface {
	Encode() ([]byte, converge.Version, error)
}

// wanted yields what replica objects should be, made from their source objects here: the programs' own way of doing that is
// what is verified.
func (s sides) wanted(facet converge.Facet, origin converge.SourceConfig) iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for key, state := range origin.All() {
			object, ok := origin.Project(key)
			if !ok {
				continue
			}
			replica, err := s.replicaOf(facet, key, object.Payload)
			if err == nil {
				_, state.Version, err = replica.Encode()
			}
			if err != nil {
				state.Version = converge.VersionOf([]byte(err.Error())) // nothing is like that
			}
			if !yield(key, state) {
				return
			}
		}
	}
}

// replicaOf returns what the replica object of an object should be.
func (s sides) replicaOf(facet converge.Facet, key converge.Key, payload []byte) (encoded, error) {
	if facet == facets.Application {
		var d argocd.Definition
		if err := json.Unmarshal(payload, &d); err != nil || s.pair.Mode == facets.Managed {
			return d, err
		}
		return argocd.MirrorDefinition(s.pair.Agent, argocd.MirrorRules{}, d)
	}
	var c argocd.Content
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, err
	}
	switch {
	case s.pair.Mode == facets.Managed && facet == facets.AppProject:
		return argocd.HubsProject(s.pair.Spoke.Namespace, true)(c)
	case s.pair.Mode == facets.Managed:
		return c, nil
	}
	return argocd.MirrorProject(s.pair.Agent, argocd.MirrorRules{}, string(key), c)
}

// replicaObjects yields all that there is where replica objects are, by what is in it and whatever it says of itself. It is not
// ok for a facet of which there are no replica objects.
func (s sides) replicaObjects(facet converge.Facet) (iter.Seq2[converge.Key, converge.State], bool) {
	where := s.spoke
	if s.pair.Mode == facets.Autonomous {
		where = s.hub
	}
	switch facet {
	case facets.Application:
		return states(where.Store.All(), s.application, func(app *argocd.App) (encoded, error) { return app.Own() }), true
	case facets.AppProject:
		return states(where.Projects.Store.All(), s.project, content), true
	case facets.Repository, facets.RepoCreds:
		return states(s.secrets.All(), func(r *argocd.Record) (converge.Key, bool) { return credentials(facet, r) }, content), true
	case facets.GPGKeys:
		return states(where.ConfigMaps.Store.All(), keys, content), true
	default:
		return nil, false
	}
}

func content(r *argocd.Record) (encoded, error) { return r.Content(), nil }

// states yields the states of objects by their contents.
func states[T facets.Kept](all iter.Seq[T], key func(T) (converge.Key, bool), own func(T) (encoded, error),
) iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for object := range all {
			k, ok := key(object)
			if !ok {
				continue
			}
			state := converge.State{UID: object.Metadata().SourceUID()}
			if e, err := own(object); err == nil {
				_, state.Version, _ = e.Encode() // which cannot fail: it came as JSON
			}
			if !yield(k, state) {
				return
			}
		}
	}
}

// application returns the key of an application where replica objects are.
func (s sides) application(app *argocd.App) (converge.Key, bool) {
	if s.pair.Mode == facets.Autonomous {
		return converge.Key(app.Name.Name), app.Name.Namespace == s.pair.Agent
	}
	key := s.pair.Spoke.Mapping.FromSpoke(app.Name)
	place, err := s.pair.Spoke.Mapping.ToSpoke(key)
	return key, err == nil && place == app.Name
}

// project returns the key of a project where replica objects are. On the hub it may be another agent's, whose name begins like
// this one's.
func (s sides) project(r *argocd.Record) (converge.Key, bool) {
	if s.pair.Mode == facets.Managed {
		return converge.Key(r.Name.Name), true
	}
	name, ok := strings.CutPrefix(r.Name.Name, s.pair.Agent+"-")
	agent := r.Annotations[argocd.AnnotationAgent]
	return converge.Key(name), ok && (agent == "" || agent == s.pair.Agent)
}

// credentials returns the key of a Secret in one of the facets. A replica object whose label somebody took away could have been
// of either: it is of the first.
func credentials(facet converge.Facet, r *argocd.Record) (converge.Key, bool) {
	key := converge.Key(r.Name.Name)
	switch r.SecretType() {
	case argocd.SecretTypeRepository:
		return key, facet == facets.Repository
	case argocd.SecretTypeRepoCreds:
		return key, facet == facets.RepoCreds
	default:
		return key, facet == facets.Repository && r.SourceUID() != ""
	}
}

// keys returns the key of the ConfigMap of GPG keys. An empty one is nobody's.
func keys(r *argocd.Record) (converge.Key, bool) {
	c := r.Content()
	return converge.Key(r.Name.Name), r.SourceUID() != "" || len(c.Data) > 0 || len(c.BinaryData) > 0
}
