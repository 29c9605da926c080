package facets

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

// Applications are the applications of one cluster: what is there, and the means to change it.
type Applications struct {
	Store  *follow.Store[*argocd.Application, *argocd.App]
	Client *argocd.Client
}

// Hub is the hub as one agent may see it.
type Hub struct {
	Applications
	Agent   string
	Mapping mapping.Mapping
}

// Spoke is the spoke as its agent sees it.
type Spoke struct {
	Applications
	Mapping mapping.Mapping
}

// get returns the hub's application under a key, if it is this agent's.
func (h Hub) get(key converge.Key) (*argocd.App, bool) {
	app, ok := h.Store.Get(h.Mapping.ToHub(h.Agent, key))
	if !ok {
		return nil, false
	}
	agent, _ := h.Mapping.FromHub(app.Name)
	return app, agent == h.Agent
}

// all yields, by their keys, the states of this agent's applications that are not zero.
func (h Hub) all(state func(*argocd.App) converge.State) iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for app := range h.Store.Group(h.Agent) {
			_, key := h.Mapping.FromHub(app.Name)
			if s := state(app); s != (converge.State{}) && !yield(key, s) {
				return
			}
		}
	}
}

// held returns the state of the application under a key, zero if there is none or if it is not this agent's.
func (h Hub) held(key converge.Key, state func(*argocd.App) converge.State) converge.State {
	app, ok := h.get(key)
	if !ok {
		return converge.State{}
	}
	return state(app)
}

// get returns the spoke's application under a key.
func (s Spoke) get(key converge.Key) (*argocd.App, bool) {
	return s.Store.Get(s.Mapping.ToSpoke(key))
}

// all yields, by their keys, the states of the spoke's applications that are not zero.
func (s Spoke) all(state func(*argocd.App) converge.State) iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for app := range s.Store.Group("") {
			if st := state(app); st != (converge.State{}) && !yield(s.Mapping.FromSpoke(app.Name), st) {
				return
			}
		}
	}
}

// held returns the state of the application under a key, zero if there is none.
func (s Spoke) held(key converge.Key, state func(*argocd.App) converge.State) converge.State {
	app, ok := s.get(key)
	if !ok {
		return converge.State{}
	}
	return state(app)
}

// attempts is how often a write is tried that meets a newer revision each time.
const attempts = 4

// errContended means that an object changed before each attempt to write it.
var errContended = errors.New("the object is being changed by others all the time")

// change writes to an application on the ground of its newest revision. need returns the patch that app needs, nil if
// none; app is nil if there is no such application. It returns the application as it is then.
//
// No revision is read before a write, because the store is nearly always up to date. Only after a conflict is, and after a
// refusal: a patch that was made for an older revision may be refused because it does not fit the newest one.
func (a Applications) change(ctx context.Context, id types.NamespacedName,
	need func(app *argocd.App) (argocd.Patch, error),
) (*argocd.App, error) {
	app, _ := a.Store.Get(id)
	for range attempts {
		patch, err := need(app)
		if err != nil || patch == nil {
			return app, err
		}
		answer, err := a.Client.Patch(ctx, id, app.Version, patch)
		if err == nil {
			return a.Store.Wrote(answer)
		}
		refused := errors.Is(err, converge.ErrRefused)
		if !refused && !argocd.IsConflict(err) {
			return app, fmt.Errorf("patch: %w", err)
		}
		newest, readErr := a.refresh(ctx, id)
		switch {
		case refused && (readErr != nil || newest != nil && newest.Version == app.Version):
			return app, fmt.Errorf("patch: %w", err)
		case readErr != nil:
			return nil, readErr
		}
		app = newest
	}
	return app, errContended
}

// refresh reads an application from the API server, nil if there is none.
func (a Applications) refresh(ctx context.Context, id types.NamespacedName) (*argocd.App, error) {
	held, known := a.Store.Get(id) // before it is asked for: what is created meanwhile is not what is gone
	answer, err := a.Client.Get(ctx, id)
	switch {
	case argocd.IsConflict(err):
		if known {
			a.Store.Erased(held)
		}
		return nil, nil //nolint:nilnil // there is none, which is no error
	case err != nil:
		return nil, fmt.Errorf("read: %w", err)
	}
	return a.Store.Wrote(answer)
}

// create creates an application. If there is one already, that is taken into the store and the creation is an error that
// is worth a retry.
func (a Applications) create(ctx context.Context, app *argocd.Application) (*argocd.App, error) {
	id := types.NamespacedName{Namespace: app.Namespace, Name: app.Name}
	answer, err := a.Client.Create(ctx, app)
	if err == nil {
		return a.Store.Wrote(answer)
	}
	if argocd.IsConflict(err) {
		if _, readErr := a.refresh(ctx, id); readErr != nil {
			return nil, errors.Join(err, readErr)
		}
	}
	return nil, fmt.Errorf("create: %w", err)
}

// remove deletes an application once it has the finalizers that it should have, if it is ours. need returns the patch that
// gives it those, nil if it has them. Since finalizers decide what becomes of its resources, only the revision that was
// found to have the right ones is deleted. It returns what is left then: nil if nothing is, or what is not ours.
func (a Applications) remove(ctx context.Context, id types.NamespacedName,
	ours func(*argocd.App) bool, need func(*argocd.App) argocd.Patch,
) (*argocd.App, error) {
	for range attempts {
		app, err := a.change(ctx, id, func(app *argocd.App) (argocd.Patch, error) {
			if app == nil || !ours(app) {
				return nil, nil
			}
			return need(app), nil
		})
		switch {
		case err != nil, app == nil, !ours(app):
			return app, err
		case app.Deleting && len(app.Finalizers) > 0:
			return app, nil
		case app.Deleting: // taking away the last finalizer ended it
			a.Store.Erased(app)
			return nil, nil //nolint:nilnil // nothing is left, which is what was asked for
		}
		left, err := a.Client.Delete(ctx, id, app.UID, app.Version)
		switch {
		case err == nil && left == nil:
			a.Store.Erased(app)
			return nil, nil //nolint:nilnil // as above
		case err == nil:
			return a.Store.Wrote(left)
		case !argocd.IsConflict(err):
			return app, fmt.Errorf("delete: %w", err)
		}
		if _, err := a.refresh(ctx, id); err != nil {
			return app, err
		}
	}
	return nil, errContended
}
