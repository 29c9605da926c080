package facets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// The annotations by which an application, on either side, says for itself what an AdoptionPolicy says for all.
const (
	annotationAdoption = "argocd.argoproj.io/adoption-policy"
	annotationMismatch = "argocd.argoproj.io/source-uid-mismatch-policy"
)

// What to do with an application that is where a replica object should be, and is no replica object.
const (
	AdoptAlways = "always" // it becomes the replica object
	AdoptNever  = "never"  // it stays as it is, and the source object tells so
)

// What to do with a replica object of another source object.
const (
	MismatchRecreate = "recreate" // it is deleted without its resources, and a new one made
	MismatchUpsert   = "upsert"   // it is changed in place
)

// What to do with a replica object that was deleted by others, once it is made again.
const (
	RecreateIgnore      = "ignore"       // it gets the status that it had
	RecreateClearStatus = "clear-status" // it begins without one
	RecreateResync      = "resync"       // so it does, and is synced at once
)

// AdoptionPolicy says which Applications become replica objects, and how those are kept.
type AdoptionPolicy struct {
	// Adoption, Mismatch and Recreate are one of the above. Empty is the first.
	Adoption, Mismatch, Recreate string
	// Origin returns what the other side is known by, as long as it lasts; empty if it says nothing of it. Replica objects of
	// another's are taken over in place: the hub was restored from a backup, or another one has taken its place.
	Origin func() string
	// Shows, if set, is the autonomous agent whose applications replica objects only show to users, on the hub, where nobody
	// reconciles them. Then nothing is adopted but what says so itself: what users of the hub made is not for an agent to take.
	Shows string
	// Alike, with Shows, reports whether an application without any mark is one of those all the same, by what it says.
	Alike func(*argocd.App) bool
	// CreateNamespace, if set, creates the namespace for a replica object. It is asked once the API server has said that there
	// is none.
	CreateNamespace func(ctx context.Context, namespace string) error
}

func (p AdoptionPolicy) render(d argocd.Definition) (argocd.Definition, error) {
	if p.Shows == "" {
		return d, nil
	}
	return argocd.MirrorDefinition(p.Shows, d)
}

// annotations are those that say where a replica object comes from besides its source object.
func (p AdoptionPolicy) annotations() map[string]string {
	switch {
	case p.Shows != "":
		return map[string]string{argocd.AnnotationAgent: p.Shows}
	case p.origin() != "":
		return map[string]string{argocd.AnnotationPrincipalUID: p.origin()}
	}
	return nil
}

func (p AdoptionPolicy) origin() string {
	if p.Origin == nil {
		return ""
	}
	return p.Origin()
}

// foreign reports whether a replica object was made of what another hub had than the one that there is now.
func (p AdoptionPolicy) foreign(copied *argocd.Head) bool {
	from := copied.Annotations[argocd.AnnotationPrincipalUID]
	return from != "" && p.origin() != "" && from != p.origin()
}

// errForeign means that the hub does not have what a replica object was made of, which another hub had. That is for an operator
// to decide: it may be the right hub, but not have been restored yet, or the wrong one.
var errForeign = fmt.Errorf("%w: it was made of what another hub had, and this one has not: delete it where it is, or its annotation %s, if it is to go",
	converge.ErrRefused, argocd.AnnotationPrincipalUID)

// action is what to do with an application that is where a replica object should be.
type action uint8

const (
	actionUpdate   action = iota // it is changed in place
	actionRecreate               // it is deleted, and a new one made
)

// actionFor decides about an application that is where a replica object should be. from is the UID of the source object that it
// was made from, empty if it is no replica object.
func (p AdoptionPolicy) actionFor(app *argocd.App, from string, want wanted) (action, error) {
	switch from {
	case want.uid:
		return actionUpdate, nil
	case "":
		return actionUpdate, p.adopts(app, want)
	}
	if there := app.Annotations[argocd.AnnotationPrincipalUID]; there != p.origin() {
		return actionUpdate, nil
	}
	policy, err := p.policy(annotationMismatch, p.Mismatch, []string{MismatchRecreate, MismatchUpsert}, app, want)
	if policy == MismatchRecreate {
		return actionRecreate, err
	}
	return actionUpdate, err
}

// adopts returns why an application may not become a replica object, nil if it may. One that still has other marks of a replica
// object is known by them.
func (p AdoptionPolicy) adopts(app *argocd.App, want wanted) error {
	there := app.Annotations
	if p.origin() != "" && there[argocd.AnnotationPrincipalUID] == p.origin() && there[argocd.AnnotationApplied] != "" {
		return nil
	}
	if app.Labels[argocd.LabelIgnore] == "true" {
		return fmt.Errorf("an application of this name is there already and has the label %s: rename or delete one of the two", argocd.LabelIgnore)
	}
	general := p.Adoption
	if p.Shows != "" {
		if p.Alike != nil && p.Alike(app) {
			return nil
		}
		general, want.Annotations = AdoptNever, nil // which the agent would decide by
	}
	policy, err := p.policy(annotationAdoption, general, []string{AdoptAlways, AdoptNever}, app, want)
	if err == nil && policy == AdoptNever {
		err = errors.New("an application of this name is there already and may not be adopted: delete it, or set its annotation " +
			annotationAdoption + ": " + AdoptAlways)
	}
	return err
}

// beginAgain returns what a replica object begins with that was deleted by others.
func (p AdoptionPolicy) beginAgain(had argocd.Status) (status, operation json.RawMessage, err error) {
	switch p.Recreate {
	case RecreateClearStatus:
	case RecreateResync:
		operation = json.RawMessage(`{"initiatedBy":{"username":"argocd-agent"},"sync":{}}`)
	default:
		status, err = had.AtRest()
	}
	return status, operation, err
}

// policy returns one of the choices: what the application that is there says, else what the source object does, else the
// general one, the first if that is empty.
func (p AdoptionPolicy) policy(annotation, general string, choices []string, app *argocd.App, want wanted) (string, error) {
	for _, said := range []string{app.Annotations[annotation], want.Annotations[annotation], general} {
		switch said {
		case choices[0], choices[1]:
			return said, nil
		case "":
		default:
			return "", fmt.Errorf("annotation %s: %q: want %s or %s", annotation, said, choices[0], choices[1])
		}
	}
	return choices[0], nil
}

// within makes something in a namespace, which may have to be created first.
func (p AdoptionPolicy) within(ctx context.Context, namespace string, create func() (*argocd.App, error)) (*argocd.App, error) {
	app, err := create()
	if !namespaceIsMissing(err) {
		return app, err
	}
	if p.CreateNamespace == nil {
		return app, fmt.Errorf("%w: there is no namespace %q: create it", converge.ErrRefused, namespace)
	}
	if err := p.CreateNamespace(ctx, namespace); err != nil {
		return app, fmt.Errorf("there is no namespace %q: %w", namespace, err)
	}
	return create()
}

// namespaceIsMissing reports whether something could not be created for want of its namespace.
func namespaceIsMissing(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
}
