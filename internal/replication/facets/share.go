package facets

import (
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Mode says where the applications and projects of a spoke are defined.
type Mode string

// The modes, by their names on the wire and in flags.
const (
	Managed    Mode = "managed"    // on the hub
	Autonomous Mode = "autonomous" // on the spoke itself
)

// Modes are all of them, as they are named in flags.
func Modes() []string { return []string{string(Managed), string(Autonomous)} }

// Facets are all that there are, in any mode.
func Facets() []converge.Facet {
	return []converge.Facet{Application, Intent, Status, AppProject, Repository, RepoCreds, GPGKeys}
}

// Kinds are all that are shared besides applications. A hub has agents of any mode, and follows all of them.
func Kinds() []Kind { return []Kind{Project, Secret, ConfigMap} }

// Kinds are those that a spoke of the mode follows besides applications.
func (m Mode) Kinds() []Kind {
	if m == Autonomous {
		return []Kind{Project}
	}
	return Kinds()
}

// Share is what one side shares with the other.
type Share struct {
	Sources  map[converge.Facet]converge.SourceConfig
	Replicas map[converge.Facet]converge.ReplicaConfig

	// Namespace is the one on the hub whose applications are all this agent's, empty if there is none. The spoke does not know.
	Namespace string

	application Side
	records     map[Kind]func(*argocd.Record) []Touched // what the change of an object concerns
	intents     *intentReplica
	replica     *applicationReplica
}

// Touched is a key of a facet that a change concerns.
type Touched struct {
	Facet converge.Facet
	Key   converge.Key
}

// Applications returns what the change of applications concerns.
func (s Share) Applications(apps ...*argocd.App) []Touched {
	var touched []Touched
	for _, app := range apps {
		key, ok := s.application.key(app)
		if !ok {
			continue
		}
		if s.intents != nil {
			s.intents.noteStarted(key, app)
		}
		touched = append(touched, Touched{Application, key}, Touched{Intent, key}, Touched{Status, key})
	}
	return touched
}

// Has reports whether an application is shared.
func (s Share) Has(app *argocd.App) bool {
	_, ok := s.application.shared(app)
	return ok && s.application.uid(app) != ""
}

// Gone is called when an application was deleted. A replica object that others deleted is created again, and may get the
// status that it had.
func (s Share) Gone(app *argocd.App) {
	if key, ok := s.application.key(app); ok && s.replica != nil {
		s.replica.sourceRefs.noteDeleted(key, app)
	}
}

// Records returns what the change of objects concerns that are no applications. Those that are nil are none.
func (s Share) Records(kind Kind, records ...*argocd.Record) []Touched {
	touch := s.records[kind]
	if touch == nil {
		return nil
	}
	var touched []Touched
	for _, r := range records {
		if r != nil {
			touched = append(touched, touch(r)...)
		}
	}
	return touched
}

// Missing reports what a new list lacked. Replica objects have changed: they are created again. For source objects, and for what
// is not kept as it was, only a resync may say that they were deleted.
func (s Share) Missing(touched []Touched, changed func(Touched), resync func(converge.Facet)) {
	resynced := make(map[converge.Facet]bool)
	for _, t := range touched {
		if s.Replicas[t.Facet].Retain {
			changed(t)
		} else if !resynced[t.Facet] {
			resynced[t.Facet] = true
			resync(t.Facet)
		}
	}
}

// touches returns what finds the key of one facet.
func touches(f converge.Facet, key func(*argocd.Record) (converge.Key, bool)) func(*argocd.Record) []Touched {
	return func(r *argocd.Record) []Touched {
		if k, ok := key(r); ok {
			return []Touched{{f, k}}
		}
		return nil
	}
}

// touchesCredentials finds the key of a Secret, in both facets: it may have become one of the other's.
func touchesCredentials(r *argocd.Record) []Touched {
	key := converge.Key(r.Name.Name)
	return []Touched{{Repository, key}, {RepoCreds, key}}
}

// credentials are the facets of Secrets by what Argo CD uses them for.
func credentials() map[string]converge.Facet {
	return map[string]converge.Facet{argocd.SecretTypeRepository: Repository, argocd.SecretTypeRepoCreds: RepoCreds}
}

// named is the key of an object whose name is the same on both sides.
func named(r *argocd.Record) (converge.Key, bool) { return converge.Key(r.Name.Name), true }

func sameName(key converge.Key) (string, error) { return string(key), nil }

// retained is a ReplicaConfig of which what was applied is put back while the other side is away, also after a restart.
func retained(r interface {
	converge.Replica
	Recall(key converge.Key) (converge.Object, bool)
	Stale(key converge.Key) bool
},
) converge.ReplicaConfig {
	return converge.ReplicaConfig{Replica: r, Retain: true, Recall: r.Recall, Stale: r.Stale}
}

// prefixed returns the name that an agent's project has on the hub.
func prefixed(agent, project string) (string, error) {
	name := agent + "-" + project
	if len(name) > argocd.LongestName {
		return "", fmt.Errorf("on the hub the project would be called %q, which is longer than %d characters: give it a shorter name", name, argocd.LongestName)
	}
	return name, nil
}
