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

// The annotations by which an application, on either side, says for itself what a Keeping says for all.
const (
	annotationAdoption = "argocd.argoproj.io/adoption-policy"
	annotationMismatch = "argocd.argoproj.io/source-uid-mismatch-policy"
)

// What to do with an application that is where a copy should be, and is no copy.
const (
	AdoptAlways = "always" // it becomes the copy
	AdoptNever  = "never"  // it stays as it is, and the original tells so
)

// What to do with a copy of another original.
const (
	MismatchRecreate = "recreate" // it is deleted without its resources, and a new one made
	MismatchUpsert   = "upsert"   // it is changed in place
)

// What to do with a copy that was deleted by others, once it is made again.
const (
	RecreateIgnore      = "ignore"       // it gets the status that it had
	RecreateClearStatus = "clear-status" // it begins without one
	RecreateResync      = "resync"       // so it does, and is synced at once
)

// Keeping says how copies of applications are kept.
type Keeping struct {
	// Adoption, Mismatch and Recreate are one of the above. Empty is the first.
	Adoption, Mismatch, Recreate string
	// Origin returns what the other side is known by, as long as it lasts; empty if it says nothing of it. Copies of
	// another's are taken over in place: the hub was restored from a backup, or another one has taken its place.
	Origin func() string
	// Shows, if set, is the autonomous agent whose applications copies only show to people, on the hub, where nobody reconciles
	// them. Then nothing is adopted but what says so itself: what people of the hub made is not for an agent to take.
	Shows string
	// Alike, with Shows, reports whether an application without any mark is one of those all the same, by what it says.
	Alike func(*argocd.App) bool
	// CreateNamespace, if set, creates the namespace for a copy. It is asked once the API server has said that there is none.
	CreateNamespace func(ctx context.Context, namespace string) error
}

func (k Keeping) render(d argocd.Definition) (argocd.Definition, error) {
	if k.Shows == "" {
		return d, nil
	}
	return argocd.MirrorDefinition(k.Shows, d)
}

// annotations are those that say where a copy comes from besides its original.
func (k Keeping) annotations() map[string]string {
	switch {
	case k.Shows != "":
		return map[string]string{argocd.AnnotationAgent: k.Shows}
	case k.origin() != "":
		return map[string]string{argocd.AnnotationPrincipalUID: k.origin()}
	}
	return nil
}

func (k Keeping) origin() string {
	if k.Origin == nil {
		return ""
	}
	return k.Origin()
}

// foreign reports whether a copy was made of what another hub had than the one that there is now.
func (k Keeping) foreign(copied *argocd.Head) bool {
	from := copied.Annotations[argocd.AnnotationPrincipalUID]
	return from != "" && k.origin() != "" && from != k.origin()
}

// errForeign means that the hub does not have what a copy was made of, which another hub had. That is for a person to judge:
// it may be the right hub, but not have been restored yet, or the wrong one.
var errForeign = fmt.Errorf("%w: it was made of what another hub had, and this one has not: delete it where it is, or its annotation %s, if it is to go",
	converge.ErrRefused, argocd.AnnotationPrincipalUID)

// verdict is what to do with an application that is where a copy should be.
type verdict uint8

const (
	change  verdict = iota // it is changed in place
	replace                // it is deleted, and a new one made
)

// judge decides about an application that is where a copy should be. from is the UID of the original that it was made
// from, empty if it is no copy.
func (k Keeping) judge(app *argocd.App, from string, want wanted) (verdict, error) {
	switch from {
	case want.uid:
		return change, nil
	case "":
		return change, k.adopts(app, want)
	}
	if there := app.Annotations[argocd.AnnotationPrincipalUID]; there != k.origin() {
		return change, nil
	}
	policy, err := k.policy(annotationMismatch, k.Mismatch, []string{MismatchRecreate, MismatchUpsert}, app, want)
	if policy == MismatchRecreate {
		return replace, err
	}
	return change, err
}

// adopts returns why an application may not become a copy, nil if it may. One that still has other marks of a copy is known by
// them.
func (k Keeping) adopts(app *argocd.App, want wanted) error {
	there := app.Annotations
	if k.origin() != "" && there[argocd.AnnotationPrincipalUID] == k.origin() && there[argocd.AnnotationApplied] != "" {
		return nil
	}
	if app.Labels[argocd.LabelIgnore] == "true" {
		return fmt.Errorf("an application of this name is there already and has the label %s: rename or delete one of the two", argocd.LabelIgnore)
	}
	general := k.Adoption
	if k.Shows != "" {
		if k.Alike != nil && k.Alike(app) {
			return nil
		}
		general, want.Annotations = AdoptNever, nil // which the agent would decide by
	}
	policy, err := k.policy(annotationAdoption, general, []string{AdoptAlways, AdoptNever}, app, want)
	if err == nil && policy == AdoptNever {
		err = errors.New("an application of this name is there already and may not be adopted: delete it, or set its annotation " +
			annotationAdoption + ": " + AdoptAlways)
	}
	return err
}

// beginAgain returns what a copy begins with that was deleted by others.
func (k Keeping) beginAgain(had argocd.Status) (status, operation json.RawMessage, err error) {
	switch k.Recreate {
	case RecreateClearStatus:
	case RecreateResync:
		operation = json.RawMessage(`{"initiatedBy":{"username":"argocd-agent"},"sync":{}}`)
	default:
		status, err = had.AtRest()
	}
	return status, operation, err
}

// policy returns one of the choices: what the application that is there says, else what the original does, else the
// general one, the first if that is empty.
func (k Keeping) policy(annotation, general string, choices []string, app *argocd.App, want wanted) (string, error) {
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
func (k Keeping) within(ctx context.Context, namespace string, create func() (*argocd.App, error)) (*argocd.App, error) {
	app, err := create()
	if !namespaceIsMissing(err) {
		return app, err
	}
	if k.CreateNamespace == nil {
		return app, fmt.Errorf("%w: there is no namespace %q: create it", converge.ErrRefused, namespace)
	}
	if err := k.CreateNamespace(ctx, namespace); err != nil {
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
