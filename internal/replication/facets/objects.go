package facets

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// Kept is what is kept of an object.
type Kept interface {
	comparable
	Metadata() *argocd.Head
}

// Objects are the objects of one kind in one cluster: what is there, and the means to change it.
type Objects[R argocd.Raw, T Kept] struct {
	Store  *follow.Store[R, T]
	Client *argocd.Client[R]
}

// Applications are the applications of one cluster.
type Applications = Objects[*argocd.Application, *argocd.App]

// attempts is how often a write is tried that meets a newer revision each time.
const attempts = 4

// errContended means that an object changed before each attempt to write it.
var errContended = errors.New("the object is being changed by others all the time")

// change writes to an object on the ground of its newest revision. need returns the patch that the object needs, nil if
// none; it is given the zero T if there is no such object. It returns the object as it is then.
//
// No revision is read before a write, because the store is nearly always up to date. Only after a conflict is, and after a
// refusal: a patch that was made for an older revision may be refused because it does not fit the newest one.
func (o Objects[R, T]) change(ctx context.Context, id types.NamespacedName, need func(T) (argocd.Patch, error)) (T, error) {
	object, _ := o.Store.Get(id)
	return o.changeFrom(ctx, id, object, need)
}

// changeFrom is change for an object that is there and may not be in the store, because that follows others only.
func (o Objects[R, T]) changeFrom(ctx context.Context, id types.NamespacedName, object T, need func(T) (argocd.Patch, error)) (T, error) {
	var none T
	for range attempts {
		patch, err := need(object)
		if err != nil || patch == nil {
			return object, err
		}
		answer, err := o.Client.Patch(ctx, id, object.Metadata().Version, patch)
		if err == nil {
			return o.Store.RecordWrite(answer)
		}
		refused := errors.Is(err, converge.ErrRefused)
		if !refused && !argocd.IsConflict(err) {
			return object, fmt.Errorf("patch: %w", err)
		}
		newest, readErr := o.refresh(ctx, id)
		switch {
		case refused && (errors.Is(readErr, converge.ErrRefused) || newest != none && newest.Metadata().Version == object.Metadata().Version):
			return object, fmt.Errorf("patch: %w", err)
		case readErr != nil:
			return none, readErr
		}
		object = newest
	}
	return object, errContended
}

// refresh reads an object from the API server, the zero T if there is none.
func (o Objects[R, T]) refresh(ctx context.Context, id types.NamespacedName) (T, error) {
	var none T
	held, known := o.Store.Get(id) // before it is asked for: what is created meanwhile is not what is gone
	answer, err := o.Client.Get(ctx, id)
	switch {
	case argocd.IsConflict(err):
		if known {
			o.Store.RecordDelete(id, held)
		}
		return none, nil
	case err != nil:
		return none, fmt.Errorf("read: %w", err)
	}
	return o.Store.RecordWrite(answer)
}

// errBehind means that the API server has an object that the store does not show.
var errBehind = errors.New("it is there, and has not been noticed yet")

// confirm asks the API server for an object, and has the store show that.
func (o Objects[R, T]) confirm(ctx context.Context, id types.NamespacedName) error {
	var nothing R
	held, known := o.Store.Get(id) // before it is asked for, as above
	found, err := o.Client.Find(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("read: %w", err)
	case found == nothing && known:
		o.Store.RecordDelete(id, held)
		return nil
	case found == nothing:
		return nil
	}
	if _, err := o.Store.RecordWrite(found); err != nil {
		return err
	}
	if _, shown := o.Store.Get(id); !shown { // it went meanwhile, or the API server was restored from a backup
		return errBehind
	}
	return nil
}

// errExists means that there is an object already where one was to be created.
var errExists = errors.New("there is one already")

// create creates an object. If there is one already, that is taken into the store and returned, and the creation is an error
// that wraps errExists and is worth a retry.
func (o Objects[R, T]) create(ctx context.Context, object R) (T, error) {
	var none T
	id := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	answer, err := o.Client.Create(ctx, object)
	if err == nil {
		return o.Store.RecordWrite(answer)
	}
	if argocd.IsConflict(err) {
		there, readErr := o.refresh(ctx, id)
		switch {
		case readErr != nil:
			return none, errors.Join(err, readErr)
		case there != none:
			return there, fmt.Errorf("create: %w: %w", errExists, err)
		}
	}
	return none, fmt.Errorf("create: %w", err)
}

// errFinalizers means that an admission webhook, say, decides about finalizers against us.
var errFinalizers = errors.New("it cannot be deleted as it should: something in its cluster puts finalizers back, or takes them away, " +
	"which decide what becomes of its resources")

// remove deletes an object once it has the finalizers that it should have, if it is ours. need returns the patch that gives
// it those, nil if it has them. Since finalizers decide what becomes of an application's resources, only the revision that
// was found to have the right ones is deleted. It returns what is left then: the zero T if nothing is, or what is not ours.
func (o Objects[R, T]) remove(ctx context.Context, id types.NamespacedName, ours func(T) bool, need func(T) argocd.Patch) (T, error) {
	object, _ := o.Store.Get(id)
	return o.removeFrom(ctx, id, object, ours, need)
}

// removeFrom is remove for an object that is there and may not be in the store, because that follows others only.
func (o Objects[R, T]) removeFrom(
	ctx context.Context, id types.NamespacedName, object T, ours func(T) bool, need func(T) argocd.Patch,
) (T, error) {
	var none T
	for range attempts {
		var err error
		object, err = o.changeFrom(ctx, id, object, func(object T) (argocd.Patch, error) {
			if object == none || !ours(object) {
				return nil, nil
			}
			return need(object), nil
		})
		if err != nil || object == none || !ours(object) {
			return object, err
		}
		if need(object) != nil {
			return object, errFinalizers
		}
		head := object.Metadata()
		switch {
		case head.Deleting && len(head.Finalizers) > 0:
			return object, nil
		case head.Deleting: // taking away the last finalizer ended it
			o.Store.RecordDelete(id, object)
			return none, nil
		}
		var nothing R
		left, err := o.Client.Delete(ctx, id, head.UID, head.Version)
		switch {
		case err == nil && left == nothing:
			o.Store.RecordDelete(id, object)
			return none, nil
		case err == nil:
			return o.Store.RecordWrite(left)
		case !argocd.IsConflict(err):
			return object, fmt.Errorf("delete: %w", err)
		}
		newest, err := o.refresh(ctx, id)
		if err != nil {
			return object, err
		}
		object = newest
	}
	return none, errContended
}

// removeFinalizers returns the patch that removes all finalizers of an object, nil if there are none.
func removeFinalizers(h *argocd.Head) argocd.Patch {
	if len(h.Finalizers) == 0 {
		return nil
	}
	var patch argocd.Patch
	patch.Replace([]string{}, "metadata", "finalizers")
	return patch
}
