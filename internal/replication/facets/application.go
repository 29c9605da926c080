package facets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// applicationSource is the half of the application facet on the side that applications come from.
type applicationSource struct {
	Side

	// mirrored says that the other side only mirrors them.
	mirrored bool
}

var _ converge.Source = applicationSource{}

// All yields the applications that are shared.
func (s applicationSource) All() iter.Seq2[converge.Key, converge.State] { return s.all(s.sourceState) }

// sourceState is the state of an application, zero if it has no definition that could be sent.
func (s applicationSource) sourceState(app *argocd.App) converge.State {
	_, version, err := s.define(app)
	if err != nil {
		return converge.State{}
	}
	return s.state(app, version)
}

func (s applicationSource) define(app *argocd.App) ([]byte, converge.Version, error) {
	if s.mirrored {
		return app.Mirror()
	}
	return app.Define()
}

// Project returns an application as the other side should have it.
func (s applicationSource) Project(key converge.Key) (converge.Object, bool) {
	app, ok := s.get(key)
	if !ok {
		return converge.Object{}, false
	}
	payload, version, err := s.define(app)
	if err != nil {
		return converge.Object{}, false
	}
	return converge.Object{State: s.state(app, version), Payload: payload, Deleting: app.Deleting}, true
}

// ReportResult lets go of an application whose deletion is over on the other side. It sets a condition on the source object if the
// other side refuses it.
func (s applicationSource) ReportResult(ctx context.Context, key converge.Key, r converge.Result) error {
	application, delay := refusalOf(s.other), delayOf(s.other)
	_, err := s.changeShared(ctx, key, func(app *argocd.App) (argocd.Patch, error) {
		if app == nil {
			return nil, nil
		}
		var patch argocd.Patch
		if r.Absent && app.Deleting && !s.mirrored {
			patch = withoutFinalizers(app)
		}
		switch r.Code {
		case converge.Done:
			application.clear(app, &patch)
		case converge.Refused:
			application.set(app, &patch, r.Reason)
		case converge.Retry:
			delay.set(app, &patch, r.Reason)
		}
		return patch, nil
	})
	return err
}

// HasRefusedCondition reports whether an application has the condition that the other side refuses it.
func (s applicationSource) HasRefusedCondition(key converge.Key) bool {
	app, ok := s.get(key)
	return ok && refusalOf(s.other).isIn(app)
}

// withoutFinalizers returns the patch that takes Argo CD's finalizers away, nil if there are none.
func withoutFinalizers(app *argocd.App) argocd.Patch {
	rest := slices.DeleteFunc(slices.Clone(app.Finalizers), argocd.IsArgoCDs)
	if len(rest) == len(app.Finalizers) {
		return nil
	}
	var patch argocd.Patch
	patch.Replace(rest, "metadata", "finalizers")
	return patch
}

// applicationReplica is the half of the application facet on the side that has replica objects.
type applicationReplica struct {
	Side

	adoption   AdoptionPolicy
	sourceRefs *sourceRefs
	// check, if set, returns why an application may not be here as the other side would have it.
	check func(argocd.Definition) error
	// pruned, if set, reports an application whose resources were pruned by somebody who deleted it here, and that was created again.
	pruned func(context.Context, *argocd.App)
}

// newApplicationReplica returns the half of the application facet on the side that has replica objects.
func newApplicationReplica(s Side, k AdoptionPolicy) applicationReplica {
	return applicationReplica{Side: s, adoption: k, sourceRefs: newSourceRefs()}
}

var _ converge.Replica = applicationReplica{}

// All yields the replica objects.
func (r applicationReplica) All() iter.Seq2[converge.Key, converge.State] {
	return r.all(r.replicaStateOf)
}

// Stale reports whether a replica object is of what another hub had, or another agent's.
func (r applicationReplica) Stale(key converge.Key) bool {
	app, ok := r.there(key)
	return ok && r.adoption.isStale(&app.Head)
}

// there returns the application where the replica object of a key is or would be, also if it is not shared.
func (r applicationReplica) there(key converge.Key) (*argocd.App, bool) {
	id, err := r.place(key)
	if err != nil {
		return nil, false
	}
	return r.Store.Get(id)
}

// Held returns what is held of a replica object.
func (r applicationReplica) Held(key converge.Key) converge.State {
	return r.held(key, r.replicaStateOf)
}

// replicaStateOf is the state of an application, zero if there is none, or if it is no replica object or another agent's.
func (r applicationReplica) replicaStateOf(app *argocd.App) converge.State {
	if app == nil || r.adoption.otherAgent(&app.Head) != "" {
		return converge.State{}
	}
	if !r.adoption.isShownByRules(app) {
		return r.state(app, byOtherRules)
	}
	return r.state(app, r.adoption.heldVersion(&app.Head, app.AppliedVersion()))
}

// byOtherRules is the version of a mirror that shows its object by other rules than the present ones: the agent is asked for it.
var byOtherRules = converge.VersionOf([]byte("by other rules")) //nolint:gochecknoglobals // a constant

// Recall returns what was last applied, if the application is still that and it has the version that was recorded with it.
func (r applicationReplica) Recall(key converge.Key) (converge.Object, bool) {
	app, ok := r.get(key)
	if !ok || app.Deleting || app.SourceUID() == "" {
		return converge.Object{}, false
	}
	own, err := app.Own()
	if err != nil {
		return converge.Object{}, false
	}
	payload, version, err := own.Encode()
	if err != nil || app.Annotations[argocd.AnnotationApplied] != version.String() {
		return converge.Object{}, false
	}
	r.sourceRefs.note(key, headOf(app))
	return converge.Object{State: r.state(app, version), Payload: payload}, true
}

// errTerminating means that an application is still being deleted.
var errTerminating = errors.New("the application is being deleted; it is created again when that is over")

// wanted is what a replica object should be.
type wanted struct {
	argocd.Definition

	annotations map[string]string // that are the replica object's own
	uid         string            // of the source object
}

// want returns what a replica object should be of what the other side says.
func (r applicationReplica) want(obj converge.Object) (wanted, error) {
	w := wanted{uid: obj.UID}
	if w.uid == "" {
		return w, fmt.Errorf("%w: it came without the UID of its source object", converge.ErrRefused)
	}
	if err := strictjson.Unmarshal(obj.Payload, &w.Definition); err != nil {
		return w, fmt.Errorf("decode the application: %w: %w", converge.ErrRefused, err)
	}
	w.Definition = argocd.SharedDefinition(w.Definition)
	switch {
	case w.Deleting && r.adoption.MirrorOf != "":
		return w, fmt.Errorf("%w: an autonomous agent's application is shown until the agent has it no more, and not deleted before", converge.ErrRefused)
	case w.Deleting:
		return w, nil
	}
	var err error
	if w.Definition, err = r.adoption.render(w.Definition); err != nil {
		return w, fmt.Errorf("%w: %w", converge.ErrRefused, err)
	}
	_, own, err := w.Encode()
	w.annotations = map[string]string{
		argocd.AnnotationSourceUID: obj.UID, argocd.AnnotationApplied: argocd.Applied(obj.Version, own),
	}
	maps.Copy(w.annotations, r.adoption.annotations())
	return w, err
}

// Apply makes a replica object match its source object.
func (r applicationReplica) Apply(ctx context.Context, key converge.Key, obj converge.Object) (converge.State, error) {
	want, err := r.want(obj)
	if err != nil {
		return converge.State{}, err
	}
	id, err := r.place(key)
	switch {
	case err != nil && want.Deleting && !r.hasReplicaAt(key, id, want):
		return converge.State{}, nil // so nothing keeps the source object from going
	case err != nil:
		return converge.State{}, fmt.Errorf("%w: %w", converge.ErrRefused, err)
	}
	if there, ok := r.there(key); ok {
		if err := r.adoption.errIfOtherAgents(&there.Head); err != nil {
			return converge.State{}, err
		}
	}
	if want.Deleting {
		return r.delete(ctx, key, id, want)
	}
	if err := r.adoption.mayName(want.Project()); err != nil {
		return r.hide(ctx, id, key, want, err)
	}
	if r.check != nil {
		if err := r.check(want.Definition); err != nil {
			return r.Held(key), err
		}
	}
	app, exists := r.get(key)
	if exists {
		if app, err = r.prepareReplace(ctx, key, app, want); err != nil {
			return r.replicaStateOf(app), err
		}
	}
	if app == nil {
		app, err = r.createReplica(ctx, key, id, want)
	} else {
		app, err = r.change(ctx, id, func(app *argocd.App) (argocd.Patch, error) {
			switch {
			case app == nil:
				return nil, errors.New("the application is gone; it is created again")
			case app.Deleting:
				return nil, errTerminating
			}
			if err := r.adoption.errIfOtherAgents(&app.Head); err != nil {
				return nil, err
			}
			return difference(app, want)
		})
	}
	if err == nil {
		r.sourceRefs.note(key, headOf(app))
	}
	return r.replicaStateOf(app), err
}

// hide deletes the mirror of an application that may not be shown any more, for a reason with which it is refused.
func (r applicationReplica) hide(ctx context.Context, id types.NamespacedName, key converge.Key, want wanted, reason error) (converge.State, error) {
	ours := func(app *argocd.App) bool { return r.sourceRefs.sourceUID(key, &app.Head) == want.uid }
	left, err := r.remove(ctx, id, ours, r.finalizersPatch)
	if err != nil {
		return r.replicaStateOf(left), err
	}
	r.sourceRefs.note(key, nil)
	return converge.State{}, fmt.Errorf("%w: %w", converge.ErrRefused, reason)
}

// createReplica creates a replica object.
func (r applicationReplica) createReplica(ctx context.Context, key converge.Key, id types.NamespacedName, want wanted) (*argocd.App, error) {
	app := &argocd.Application{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: id.Namespace, Name: id.Name, Labels: want.Labels,
			Annotations: want.annotationsBeside(nil), Finalizers: want.Finalizers,
		},
		Spec: want.Spec,
	}
	status, again := r.sourceRefs.recreated(key, want.uid)
	if again {
		var err error
		if app.Status, app.Operation, err = r.adoption.recreatedState(status); err != nil {
			return nil, err
		}
	}
	created, err := r.adoption.createInNamespace(ctx, id.Namespace, func() (*argocd.App, error) { return r.create(ctx, app) })
	if err == nil && again && app.Operation == nil && r.pruned != nil && slices.ContainsFunc(want.Finalizers, argocd.IsCascade) {
		r.pruned(ctx, created)
	}
	return created, err
}

// prepareReplace deletes an application that must be replaced. It returns the application if it is to be changed in place,
// nil if a new one is to be created.
func (r applicationReplica) prepareReplace(ctx context.Context, key converge.Key, app *argocd.App, want wanted) (*argocd.App, error) {
	this := func(a *argocd.App) bool { return a.UID == app.UID && r.adoption.otherAgent(&a.Head) == "" }
	switch action, err := r.adoption.actionFor(app, r.sourceRefs.sourceUID(key, &app.Head), want); {
	case err != nil:
		return app, fmt.Errorf("%w: %w", converge.ErrRefused, err)
	case app.Deleting && r.adoption.MirrorOf != "", action == actionRecreate:
		left, err := r.remove(ctx, app.Name, this, r.finalizersPatch)
		if err == nil && left != nil {
			err = errTerminating
		}
		return left, err
	}
	return app, nil
}

// difference returns the patch that makes a replica object what it should be, nil if it is.
func difference(app *argocd.App, want wanted) (argocd.Patch, error) {
	have, err := app.Own()
	if err != nil {
		return nil, err
	}
	var patch argocd.Patch
	if !maps.Equal(have.Labels, want.Labels) {
		patch.Replace(orEmpty(want.Labels), "metadata", "labels")
	}
	if annotations := want.annotationsBeside(app.Annotations); !maps.Equal(annotations, app.Annotations) {
		patch.Replace(annotations, "metadata", "annotations")
	}
	if !slices.Equal(have.Finalizers, want.Finalizers) {
		patch = append(patch, withCascades(app, want.Finalizers)...)
	}
	if !bytes.Equal(have.Spec, want.Spec) {
		patch.Replace(want.Spec, "spec")
	}
	return patch, nil
}

// annotationsBeside returns a replica object's annotations: the source object's, its own, and those that its side has for itself.
func (w wanted) annotationsBeside(present map[string]string) map[string]string {
	return copyAnnotations(present, w.Annotations, w.annotations)
}

// copyAnnotations returns the annotations of a replica object.
func copyAnnotations(present, originals, own map[string]string) map[string]string {
	out := make(map[string]string, len(originals)+len(own))
	for k, v := range present {
		if argocd.IsLocal(k) {
			out[k] = v
		}
	}
	maps.Copy(out, originals)
	maps.Copy(out, own)
	return out
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// delete deletes a replica object as the source object is deleted: its finalizers decide about its resources. They may have changed
// along with the deletion, so they are made to match first. Once a deletion has begun none can be added, and which are left
// says how far it has come: then nothing is changed.
func (r applicationReplica) delete(ctx context.Context, key converge.Key, id types.NamespacedName, want wanted) (converge.State, error) {
	ours := func(app *argocd.App) bool {
		return r.sourceRefs.sourceUID(key, &app.Head) == want.uid && r.adoption.otherAgent(&app.Head) == ""
	}
	left, err := r.remove(ctx, id, ours, func(app *argocd.App) argocd.Patch {
		if app.Deleting || slices.Equal(app.Cascades(), want.Finalizers) {
			return nil
		}
		return withCascades(app, want.Finalizers)
	})
	if err == nil && left == nil {
		r.sourceRefs.note(key, nil) // it is not made again
	}
	if left == nil || !ours(left) {
		return converge.State{}, errors.Join(err, r.errIfMayBeReplica(key, left, want))
	}
	return r.replicaStateOf(left), err
}

// errIfMayBeReplica returns an error if an application may be the replica object that is to be deleted with its resources,
// though nothing on it says so any more: to say that it is gone would be wrong, and to delete it may be.
func (r applicationReplica) errIfMayBeReplica(key converge.Key, app *argocd.App, want wanted) error {
	if app == nil || len(want.Finalizers) == 0 || r.sourceRefs.sourceUID(key, &app.Head) != "" {
		return nil
	}
	if mayBe := r.adoption.errIfNotAdoptable(app, want) == nil; mayBe {
		return fmt.Errorf("%w: an application of this name is there, and nothing says whose it is: delete it there if it is to go, and take the finalizers of this one away",
			converge.ErrRefused)
	}
	return nil
}

// hasReplicaAt reports whether there is a replica object in a place that is no longer allowed, with resources that are to be
// deleted with it.
func (r applicationReplica) hasReplicaAt(key converge.Key, id types.NamespacedName, want wanted) bool {
	app, ok := r.Store.Get(id)
	return ok && len(want.Finalizers) > 0 && r.sourceRefs.sourceUID(key, &app.Head) == want.uid
}

// finalizersPatch returns the patch that removes the finalizers on which the deletion of a replica object would hang. A
// mirror loses all of them: no controller works them off.
func (r applicationReplica) finalizersPatch(app *argocd.App) argocd.Patch {
	if r.adoption.MirrorOf == "" {
		return withoutFinalizers(app)
	}
	return removeFinalizers(&app.Head)
}

// withCascades returns the patch that gives an application these of the finalizers that are synchronised, and no others.
func withCascades(app *argocd.App, finalizers []string) argocd.Patch {
	others := slices.DeleteFunc(slices.Clone(app.Finalizers), argocd.IsCascade)
	var patch argocd.Patch
	patch.Replace(append(others, finalizers...), "metadata", "finalizers")
	return patch
}

// Remove deletes a replica object whose source object is gone. There the finalizers were taken away before, or never were:
// somebody wants its resources to stay. So they are taken away here too.
func (r applicationReplica) Remove(ctx context.Context, key converge.Key, uid string) (converge.State, error) {
	id, err := r.place(key)
	if err != nil {
		return converge.State{}, nil //nolint:nilerr // there is nothing where nothing can be
	}
	ours := func(app *argocd.App) bool {
		from := r.sourceRefs.sourceUID(key, &app.Head)
		return from != "" && (uid == "" || from == uid) && r.adoption.otherAgent(&app.Head) == ""
	}
	if app, ok := r.get(key); ok && ours(app) && r.adoption.isOtherHubs(&app.Head) {
		return r.replicaStateOf(app), errOtherHub
	}
	left, err := r.remove(ctx, id, ours, r.finalizersPatch)
	if err == nil {
		r.sourceRefs.note(key, headOf(left))
	}
	return r.replicaStateOf(left), err
}
