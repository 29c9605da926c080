package facets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
)

// ApplicationSource is the hub's half of the application facet in managed mode.
type ApplicationSource struct{ Hub }

var _ converge.Source = ApplicationSource{}

// All yields the agent's applications.
func (s ApplicationSource) All() iter.Seq2[converge.Key, converge.State] { return s.all(hubDefinition) }

// hubDefinition is the state of a hub's application, zero if it has no definition that could be sent.
func hubDefinition(app *argocd.App) converge.State {
	_, version, err := app.Define()
	if err != nil {
		return converge.State{}
	}
	return converge.State{UID: string(app.UID), Version: version}
}

// Project returns an application as its spoke should have it.
func (s ApplicationSource) Project(key converge.Key) (converge.Object, bool) {
	app, ok := s.get(key)
	if !ok {
		return converge.Object{}, false
	}
	payload, version, err := app.Define()
	if err != nil {
		return converge.Object{}, false
	}
	return converge.Object{State: converge.State{UID: string(app.UID), Version: version}, Payload: payload}, true
}

// Settled lets go of an application whose deletion is over on the spoke, and tells on the hub's object if the spoke
// refuses it.
func (s ApplicationSource) Settled(ctx context.Context, key converge.Key, r converge.Result) error {
	_, err := s.change(ctx, s.Mapping.ToHub(s.Agent, key), func(app *argocd.App) (argocd.Patch, error) {
		if app == nil {
			return nil, nil
		}
		var patch argocd.Patch
		if r.Absent && app.Deleting {
			patch = withoutFinalizers(app)
		}
		switch r.Code {
		case converge.Done:
			ofApplication.withdraw(app, &patch)
		case converge.Refused:
			ofApplication.tell(app, &patch, r.Reason)
		case converge.Retry:
			delayOfApplication.tell(app, &patch, r.Reason)
		}
		return patch, nil
	})
	return err
}

// Troubled reports whether an application tells that its spoke refuses it.
func (s ApplicationSource) Troubled(key converge.Key) bool {
	app, ok := s.get(key)
	return ok && ofApplication.isIn(app)
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

// ApplicationReplica is the spoke's half of the application facet in managed mode.
type ApplicationReplica struct {
	Spoke

	origins *origins
}

// NewApplicationReplica returns the spoke's half of the application facet in managed mode.
func NewApplicationReplica(s Spoke) ApplicationReplica { return ApplicationReplica{s, newOrigins()} }

var _ converge.Replica = ApplicationReplica{}

// All yields the applications that came from the hub.
func (r ApplicationReplica) All() iter.Seq2[converge.Key, converge.State] {
	return r.all(definitionState)
}

// Held returns what is held of an application that came from the hub.
func (r ApplicationReplica) Held(key converge.Key) converge.State {
	return r.held(key, definitionState)
}

// definitionState is the state of a spoke's application, zero if there is none or if it did not come from the hub.
func definitionState(app *argocd.App) converge.State {
	if app == nil || app.SourceUID() == "" {
		return converge.State{}
	}
	_, version, err := app.Define()
	if err != nil {
		return converge.State{}
	}
	return converge.State{UID: app.SourceUID(), Version: version}
}

// Recall returns what was last applied, if the application is still that: its definition has the version that was written
// down with it.
func (r ApplicationReplica) Recall(key converge.Key) (converge.Object, bool) {
	app, ok := r.get(key)
	if !ok {
		return converge.Object{}, false
	}
	state := definitionState(app)
	payload, version, err := app.Define()
	if err != nil || state.UID == "" || app.Deleting || app.Annotations[argocd.AnnotationApplied] != version.String() {
		return converge.Object{}, false
	}
	r.origins.note(key, app)
	return converge.Object{State: state, Payload: payload}, true
}

// errTerminating means that an application is still being deleted.
var errTerminating = errors.New("the application is being deleted; it is created again when that is over")

// Apply makes the spoke's application match the hub's.
func (r ApplicationReplica) Apply(ctx context.Context, key converge.Key, obj converge.Object) (converge.State, error) {
	var want argocd.Definition
	if err := json.Unmarshal(obj.Payload, &want); err != nil {
		return converge.State{}, fmt.Errorf("decode the application: %w: %w", converge.ErrRefused, err)
	}
	app, exists := r.get(key)
	switch {
	case want.Deleting:
		return r.delete(ctx, key, obj.UID, want.Finalizers)
	case !exists:
		id := r.Mapping.ToSpoke(key)
		app, err := r.create(ctx, &argocd.Application{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: id.Namespace, Name: id.Name, Labels: want.Labels,
				Annotations: ownAnnotations(nil, want.Annotations, obj.State), Finalizers: want.Finalizers,
			},
			Spec: want.Spec,
		})
		r.note(key, app, err)
		return definitionState(app), err
	}
	app, err := r.change(ctx, app.Name, func(app *argocd.App) (argocd.Patch, error) {
		switch {
		case app == nil:
			return nil, errors.New("the application is gone; it is created again")
		case app.Deleting:
			return nil, errTerminating
		}
		return difference(app, want, obj.State)
	})
	r.note(key, app, err)
	return definitionState(app), err
}

// note takes note of where an application comes from that was written.
func (r ApplicationReplica) note(key converge.Key, app *argocd.App, err error) {
	if err == nil {
		r.origins.note(key, app)
	}
}

// difference returns the patch that makes app what it should be, nil if it is.
func difference(app *argocd.App, want argocd.Definition, from converge.State) (argocd.Patch, error) {
	payload, _, err := app.Define()
	if err != nil {
		return nil, err
	}
	var have argocd.Definition
	if err := json.Unmarshal(payload, &have); err != nil {
		return nil, fmt.Errorf("decode the present application: %w", err)
	}
	var patch argocd.Patch
	if !maps.Equal(have.Labels, want.Labels) {
		patch.Replace(orEmpty(want.Labels), "metadata", "labels")
	}
	if annotations := ownAnnotations(app.Annotations, want.Annotations, from); !maps.Equal(annotations, app.Annotations) {
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

// ownAnnotations returns the annotations of a spoke's application: the hub's, and its own local ones.
func ownAnnotations(present, hub map[string]string, from converge.State) map[string]string {
	out := make(map[string]string, len(hub)+2)
	for k, v := range present {
		if argocd.IsLocal(k) {
			out[k] = v
		}
	}
	maps.Copy(out, hub)
	out[argocd.AnnotationSourceUID] = from.UID
	out[argocd.AnnotationApplied] = from.Version.String()
	return out
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// delete deletes an application as the hub's is deleted: its finalizers decide about its resources. They may have changed
// along with the deletion, so they are made to match first. Once a deletion has begun none can be added, and which are left
// says how far it has come: then nothing is changed.
func (r ApplicationReplica) delete(ctx context.Context, key converge.Key, uid string, finalizers []string) (converge.State, error) {
	ours := func(app *argocd.App) bool { return r.origins.of(key, app) == uid }
	left, err := r.remove(ctx, r.Mapping.ToSpoke(key), ours, func(app *argocd.App) argocd.Patch {
		if app.Deleting || slices.Equal(app.Cascades(), finalizers) {
			return nil
		}
		return withCascades(app, finalizers)
	})
	if left == nil || !ours(left) {
		return converge.State{}, err
	}
	return definitionState(left), err
}

// withCascades returns the patch that gives an application these of the finalizers that are synchronised, and no others.
func withCascades(app *argocd.App, finalizers []string) argocd.Patch {
	others := slices.DeleteFunc(slices.Clone(app.Finalizers), argocd.IsCascade)
	var patch argocd.Patch
	patch.Replace(append(others, finalizers...), "metadata", "finalizers")
	return patch
}

// Remove deletes an application that is gone on the hub. There the finalizers were taken away before, or never were:
// somebody wants its resources to stay. So they are taken away here too.
func (r ApplicationReplica) Remove(ctx context.Context, key converge.Key, uid string) (converge.State, error) {
	left, err := r.remove(ctx, r.Mapping.ToSpoke(key), func(app *argocd.App) bool {
		from := r.origins.of(key, app)
		return from != "" && (uid == "" || from == uid)
	}, withoutFinalizers)
	r.note(key, left, err)
	return definitionState(left), err
}
