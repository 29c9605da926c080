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
	AdoptNever  = "never"  // it stays as it is, and the source object gets a condition
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
	// Origin returns the UID of the hub, empty if it is not known. Replica objects of another hub that this one has too are taken over
	// in place, whatever Adoption says: the hub was restored from a backup, or another one has replaced it. The others are left alone.
	Origin func() string
	// Agent, if set, returns the managed agent that replica objects on a spoke are for, empty if it is not known. Those of another
	// agent are left alone: this one has the wrong certificate, or the wrong cluster.
	Agent func() string
	// MirrorOf, if set, is the autonomous agent whose applications the replica objects mirror on the hub, where no
	// controller reconciles them. Then only objects whose annotation says so are adopted: an agent must not take what users
	// of the hub made.
	MirrorOf string
	// MirrorRules, with MirrorOf, say what is shown of those applications.
	MirrorRules argocd.MirrorRules
	// MayName, with MirrorOf, returns why the hub does not show applications of a project, by its name on the hub; nil if it does.
	MayName func(project string) error
	// IsMirror, with MirrorOf, reports whether an application without our annotations is one of those all the same, by its content.
	IsMirror func(*argocd.App) bool
	// CreateNamespace, if set, creates the namespace for a replica object. It is asked once the API server has said that there
	// is none.
	CreateNamespace func(ctx context.Context, namespace string) error
}

func (p AdoptionPolicy) render(d argocd.Definition) (argocd.Definition, error) {
	if p.MirrorOf == "" {
		return d, nil
	}
	return argocd.MirrorDefinition(p.MirrorOf, p.MirrorRules, d)
}

// annotations are those that say where a replica object comes from besides its source object.
func (p AdoptionPolicy) annotations() map[string]string {
	if p.MirrorOf != "" {
		return map[string]string{argocd.AnnotationAgent: p.MirrorOf, argocd.AnnotationMirrorRules: p.MirrorRules.ID()}
	}
	own := make(map[string]string)
	if hub := p.hubUID(); hub != "" {
		own[argocd.AnnotationPrincipalUID] = hub
	}
	if agent := p.agent(); agent != "" {
		own[argocd.AnnotationAgent] = agent
	}
	return own
}

func (p AdoptionPolicy) agent() string {
	if p.Agent == nil {
		return ""
	}
	return p.Agent()
}

// otherAgent returns the agent that an object on a spoke is the replica object for, empty if that is this one or is not known.
func (p AdoptionPolicy) otherAgent(object *argocd.Head) string {
	if theirs, mine := object.Annotations[argocd.AnnotationAgent], p.agent(); mine != "" && theirs != mine {
		return theirs
	}
	return ""
}

// errIfOtherAgents returns why an object on a spoke is left alone that is the replica object for another agent, nil if it is not.
func (p AdoptionPolicy) errIfOtherAgents(object *argocd.Head) error {
	theirs := p.otherAgent(object)
	if theirs == "" {
		return nil
	}
	return fmt.Errorf("%w: what is there under this name is the replica object for another agent, %q, and this is agent %q: %s",
		converge.ErrRefused, theirs, p.agent(), RemedyForOthers(theirs))
}

// RemedyForOthers says what to do on a spoke that has replica objects for another agent than the one that is there.
func RemedyForOthers(theirs string) string {
	return fmt.Sprintf("if this is the cluster of %q, issue its agent a certificate of that name; to hand them over to this agent, remove their annotation %s",
		theirs, argocd.AnnotationAgent)
}

// heldVersion returns the version that a replica object counts as having. One that does not say yet which agent it is for counts as
// different, so that it is applied again, and then does.
func (p AdoptionPolicy) heldVersion(replica *argocd.Head, version converge.Version) converge.Version {
	if version == (converge.Version{}) || p.agent() == "" || replica.Annotations[argocd.AnnotationAgent] != "" {
		return version
	}
	return converge.VersionOf([]byte("without agent " + version.String()))
}

// isStale reports whether what is held is not to be restored: its source object was on another hub, or is another agent's.
func (p AdoptionPolicy) isStale(replica *argocd.Head) bool {
	return p.isOtherHubs(replica) || p.otherAgent(replica) != ""
}

// isShownByRules reports whether a mirror shows its object by the present rules, and of a project that it may name.
func (p AdoptionPolicy) isShownByRules(mirror *argocd.App) bool {
	return p.MirrorOf == "" || mirror.Annotations[argocd.AnnotationMirrorRules] == p.MirrorRules.ID() && p.mayName(mirror.Project()) == nil
}

// mayName returns why there is no replica object of a project, nil if there may be.
func (p AdoptionPolicy) mayName(project string) error {
	if p.MayName == nil {
		return nil
	}
	return p.MayName(project)
}

func (p AdoptionPolicy) hubUID() string {
	if p.Origin == nil {
		return ""
	}
	return p.Origin()
}

// isOtherHubs reports whether the source object of a replica object was on another hub than the present one.
func (p AdoptionPolicy) isOtherHubs(replica *argocd.Head) bool {
	from := replica.Annotations[argocd.AnnotationPrincipalUID]
	return from != "" && p.hubUID() != "" && from != p.hubUID()
}

// errOtherHub means that a replica object has its source object on another hub, and this hub does not have it. An operator
// has to decide: this may be the right hub, but not restored yet, or the wrong one.
var errOtherHub = fmt.Errorf("%w: its source object was on another hub, and this hub does not have it: if it is to go, delete it on the spoke, or remove its annotation %s",
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
		return actionUpdate, p.errIfNotAdoptable(app, want)
	}
	if there := app.Annotations[argocd.AnnotationPrincipalUID]; there != p.hubUID() {
		return actionUpdate, nil
	}
	policy, err := p.policy(annotationMismatch, p.Mismatch, []string{MismatchRecreate, MismatchUpsert}, app.Annotations, want.Annotations)
	if policy == MismatchRecreate {
		return actionRecreate, err
	}
	return actionUpdate, err
}

// errIfNotAdoptable returns why an application may not become a replica object, nil if it may. An application that still has
// other annotations of a replica object is recognised by them.
func (p AdoptionPolicy) errIfNotAdoptable(app *argocd.App, want wanted) error {
	there := app.Annotations
	if p.hubUID() != "" && there[argocd.AnnotationPrincipalUID] == p.hubUID() && there[argocd.AnnotationApplied] != "" {
		return nil
	}
	if app.Labels[argocd.LabelIgnore] == "true" {
		return fmt.Errorf("an application of this name is there already and has the label %s: rename or delete one of the two", argocd.LabelIgnore)
	}
	general := p.Adoption
	if p.MirrorOf != "" {
		if p.IsMirror != nil && p.IsMirror(app) {
			return nil
		}
		general = AdoptNever // the agent must not decide that
	}
	return p.errIfKept("an application", general, there, want.Annotations)
}

// errIfKept returns why an object that is there stays as it is, nil if it may be adopted. what is what to call it.
func (p AdoptionPolicy) errIfKept(what, general string, there, theirs map[string]string) error {
	if general == AdoptNever {
		theirs = nil // the other side may be stricter than this one says, and not laxer
	}
	policy, err := p.policy(annotationAdoption, general, []string{AdoptAlways, AdoptNever}, there, theirs)
	if err == nil && policy == AdoptNever {
		err = fmt.Errorf("%s of this name is there already and may not be adopted: delete it, or set its annotation %s: %s",
			what, annotationAdoption, AdoptAlways)
	}
	return err
}

// recreatedState returns the status and the operation of a replica object that others deleted and that is created again.
func (p AdoptionPolicy) recreatedState(had argocd.Status) (status, operation json.RawMessage, err error) {
	switch p.Recreate {
	case RecreateClearStatus:
	case RecreateResync:
		operation = json.RawMessage(`{"initiatedBy":{"username":"argocd-agent"},"sync":{}}`)
	default:
		status, err = had.AtRest()
	}
	return status, operation, err
}

// policy returns one of the choices: what the object that is there says by its annotations, else what the source object does, else
// the general one, the first if that is empty.
func (AdoptionPolicy) policy(annotation, general string, choices []string, there, theirs map[string]string) (string, error) {
	for _, value := range []string{there[annotation], theirs[annotation], general} {
		switch value {
		case choices[0], choices[1]:
			return value, nil
		case "":
		default:
			return "", fmt.Errorf("annotation %s: %q: want %s or %s", annotation, value, choices[0], choices[1])
		}
	}
	return choices[0], nil
}

// createInNamespace calls create. If the namespace is missing, it creates that first.
func (p AdoptionPolicy) createInNamespace(ctx context.Context, namespace string, create func() (*argocd.App, error)) (*argocd.App, error) {
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
