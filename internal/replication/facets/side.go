package facets

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// Side is one cluster's applications, as far as one agent and the hub share them.
type Side struct {
	Applications

	// place returns where the application under a key is or would be.
	place func(converge.Key) (types.NamespacedName, error)
	// key returns an application's key, false if it is not shared whatever its labels are.
	key func(*argocd.App) (converge.Key, bool)
	// group is the store's that has all that is shared, and perhaps more.
	group string
	// selector is what source objects are shared by; nil is all. A replica object is one whatever becomes of its labels.
	selector labels.Selector
	// isSource says that applications come from this side. Both sides know an application by the UID of the source object.
	isSource bool
	// agent is the one that the hub shares them with. A spoke does not need it.
	agent string
	// adoption, of a managed agent's spoke, says which applications are replica objects for another agent. Those are not shared.
	adoption AdoptionPolicy
	// other is what conditions and errors call the other side.
	other string
}

// hubSide returns the hub's applications as they are shared with an agent.
func hubSide(a Applications, m mapping.Mapping, agent string, isSource bool) Side {
	return Side{
		Applications: a, agent: agent, group: agent, isSource: isSource, other: "spoke",
		place: func(key converge.Key) (types.NamespacedName, error) { return m.ToHub(agent, key) },
		key: func(app *argocd.App) (converge.Key, bool) {
			key := m.FromHub(app.Name)
			meant, allowed := m.Agent(app.Name, app.Destination())
			if shows := app.Annotations[argocd.AnnotationAgent]; shows != "" {
				meant, allowed = shows, allowed && !isSource // a mirror is sent to no agent
			}
			place, err := m.ToHub(agent, key)
			return key, allowed && meant == agent && err == nil && place == app.Name
		},
	}
}

// spokeSide returns the spoke's applications.
func spokeSide(a Applications, m mapping.Mapping, isSource bool) Side {
	return Side{
		Applications: a, isSource: isSource, other: "hub", place: m.ToSpoke,
		key: func(app *argocd.App) (converge.Key, bool) {
			key := m.FromSpoke(app.Name)
			place, err := m.ToSpoke(key)
			return key, err == nil && place == app.Name
		},
	}
}

// shared returns the key of an application, false if it is not shared, by where it is, by its labels or by whose it is.
func (s Side) shared(app *argocd.App) (converge.Key, bool) {
	key, ok := s.key(app)
	return key, ok && selects(s.selector, &app.Head) && s.adoption.otherAgent(&app.Head) == ""
}

// uid returns the UID by which both sides know an application, empty for one that is no replica object of the other side's.
func (s Side) uid(app *argocd.App) string {
	if s.isSource {
		return string(app.UID)
	}
	return app.SourceUID()
}

// state returns a state of an application, zero if its version is or if it is not shared.
func (s Side) state(app *argocd.App, version converge.Version) converge.State {
	if uid := s.uid(app); uid != "" && version != (converge.Version{}) {
		return converge.State{UID: uid, Version: version}
	}
	return converge.State{}
}

// get returns the application under a key, if it is shared.
func (s Side) get(key converge.Key) (*argocd.App, bool) {
	id, err := s.place(key)
	if err != nil {
		return nil, false
	}
	app, ok := s.Store.Get(id)
	if !ok {
		return nil, false
	}
	_, ok = s.shared(app)
	return app, ok
}

// all yields, by their keys, the states of the applications that are not zero.
func (s Side) all(state func(*argocd.App) converge.State) iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for app := range s.Store.Group(s.group) {
			key, ok := s.shared(app)
			if !ok {
				continue
			}
			if st := state(app); st != (converge.State{}) && !yield(key, st) {
				return
			}
		}
	}
}

// held returns the state of the application under a key, zero if there is none.
func (s Side) held(key converge.Key, state func(*argocd.App) converge.State) converge.State {
	app, ok := s.get(key)
	if !ok {
		return converge.State{}
	}
	return state(app)
}

// changeShared is change for the application under a key. need is given nil if there is none that is shared: one that has just
// lost the label that it was shared by belongs to others, though the watch may not have said so yet.
func (s Side) changeShared(ctx context.Context, key converge.Key, need func(*argocd.App) (argocd.Patch, error)) (*argocd.App, error) {
	id, err := s.place(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", converge.ErrRefused, err)
	}
	shared := func(app *argocd.App) *argocd.App {
		if app == nil {
			return nil
		}
		if found, ok := s.shared(app); !ok || found != key {
			return nil
		}
		return app
	}
	app, err := s.change(ctx, id, func(app *argocd.App) (argocd.Patch, error) { return need(shared(app)) })
	return shared(app), err
}
