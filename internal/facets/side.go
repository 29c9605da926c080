package facets

import (
	"context"
	"errors"
	"fmt"

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

// get returns the spoke's application under a key.
func (s Spoke) get(key converge.Key) (*argocd.App, bool) {
	return s.Store.Get(s.Mapping.ToSpoke(key))
}

// attempts is how often a write is tried that meets a newer revision each time.
const attempts = 4

// errContended means that an object changed before each attempt to write it.
var errContended = errors.New("the object is being changed by others all the time")

// change writes to an application on the ground of its newest revision. need returns the patch that app needs, nil if
// none; app is nil if there is no such application. It returns the application as it is then.
//
// No revision is read before a write, because the store is nearly always up to date. Only after a conflict is.
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
		if !argocd.IsConflict(err) {
			return app, fmt.Errorf("patch: %w", err)
		}
		if app, err = a.refresh(ctx, id); err != nil {
			return nil, err
		}
	}
	return app, errContended
}

// refresh reads an application from the API server, nil if there is none.
func (a Applications) refresh(ctx context.Context, id types.NamespacedName) (*argocd.App, error) {
	answer, err := a.Client.Get(ctx, id)
	switch {
	case argocd.IsConflict(err):
		if app, ok := a.Store.Get(id); ok {
			a.Store.Erased(app)
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

// remove deletes an application and returns what is left of it, nil if nothing is.
func (a Applications) remove(ctx context.Context, app *argocd.App) (*argocd.App, error) {
	left, err := a.Client.Delete(ctx, app.Name, app.UID)
	if argocd.IsConflict(err) { // it has another UID by now
		if _, readErr := a.refresh(ctx, app.Name); readErr != nil {
			err = errors.Join(err, readErr)
		}
	}
	switch {
	case err != nil:
		return app, fmt.Errorf("delete: %w", err)
	case left == nil:
		a.Store.Erased(app)
		return nil, nil //nolint:nilnil // nothing is left, which is what was asked for
	}
	return a.Store.Wrote(left)
}
