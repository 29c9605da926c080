package facets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Records are the objects of one kind in one cluster, of which nothing but their content is shared.
type Records = Objects[*argocd.Object, *argocd.Record]

// objectSource is the half of a facet of plain objects on the side that they come from. They are in one namespace on either
// side, and the key is the name.
type objectSource struct {
	Records

	namespace string
	// offer returns what the other side should have of an object, encoded, and whether it should have anything.
	offer func(*argocd.Record) (payload []byte, version converge.Version, ok bool)
	// report says what the other side could not take.
	report func(ctx context.Context, r *argocd.Record, result converge.Result)
}

var _ converge.Source = objectSource{}

// All implements converge.Source.
func (s objectSource) All() iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for r := range s.Store.All() {
			if o, ok := s.object(r); ok && !yield(converge.Key(r.Name.Name), o.State) {
				return
			}
		}
	}
}

// Project implements converge.Source.
func (s objectSource) Project(key converge.Key) (converge.Object, bool) {
	if r, ok := s.get(key); ok {
		return s.object(r)
	}
	return converge.Object{}, false
}

func (s objectSource) get(key converge.Key) (*argocd.Record, bool) {
	return s.Store.Get(types.NamespacedName{Namespace: s.namespace, Name: string(key)})
}

func (s objectSource) object(r *argocd.Record) (converge.Object, bool) {
	payload, version, ok := s.offer(r)
	if !ok {
		return converge.Object{}, false
	}
	return converge.Object{State: converge.State{UID: string(r.UID), Version: version}, Payload: payload}, true
}

// ReportResult reports to users what the other side refuses, or has not been able to take for a while.
func (s objectSource) ReportResult(ctx context.Context, key converge.Key, r converge.Result) error {
	if record, ok := s.get(key); ok && r.Code != converge.Done {
		s.report(ctx, record, r)
	}
	return nil
}

// HasRefusedCondition returns false: objects have no conditions of ours, and Events are not taken back.
func (s objectSource) HasRefusedCondition(converge.Key) bool { return false }

// objectReplica is the half of a facet of plain objects on the side that has replica objects.
type objectReplica struct {
	Records

	namespace string
	// name returns the name of a replica object. keyOf is the reverse: false if no replica object can have the name.
	name  func(converge.Key) (string, error)
	keyOf func(*argocd.Record) (converge.Key, bool)
	// secretType, if set, is the Argo CD secret type of this facet.
	secretType string
	// render returns a replica object's content.
	render func(key converge.Key, source argocd.Content) (argocd.Content, error)
	// ownAnnotations are annotations of each replica object.
	ownAnnotations map[string]string
	// rules, if set, identifies the rules by which the objects are shown.
	rules string
	// adoption says which hub and agent replica objects are for, and Adoption in it which others become some.
	adoption AdoptionPolicy
	// adopt says whether an object that is there and is no replica object becomes one, as far as adoption permits it.
	adopt bool
	// closed, if set, is the namespace that render closes to projects. What was made under another rule is made again.
	closed     string
	sourceRefs *sourceRefs
	// takeOver, if set, reports whether an object that shows another agent's becomes this one's: its name is for this one.
	takeOver func(*argocd.Record) bool
	// detach has the replica objects that are never deleted. Each function returns the patch that makes it an ordinary object
	// instead.
	detach map[converge.Key]func(*argocd.Record) argocd.Patch
}

var _ converge.Replica = objectReplica{}

// All implements converge.Replica.
func (r objectReplica) All() iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		for record := range r.Store.All() {
			key, ok := r.keyOf(record)
			if !ok {
				continue
			}
			if s := r.replicaStateOf(record); s != (converge.State{}) && !yield(key, s) {
				return
			}
		}
	}
}

// Held implements converge.Replica.
func (r objectReplica) Held(key converge.Key) converge.State {
	record, _ := r.get(key)
	return r.replicaStateOf(record)
}

// Stale reports whether a replica object is of what another hub had, or another agent's.
func (r objectReplica) Stale(key converge.Key) bool {
	record, ok := r.get(key)
	return ok && r.adoption.isStale(&record.Head)
}

// replicaStateOf is the state of an object, zero if it is no replica object of this facet.
func (r objectReplica) replicaStateOf(record *argocd.Record) converge.State {
	if record == nil || record.SourceUID() == "" || !r.isCandidate(record) || !r.hasOwnAnnotations(record) ||
		r.otherAgent(record) != "" {
		return converge.State{}
	}
	version := r.adoption.heldVersion(&record.Head, record.AppliedVersion())
	if !record.IsUnchanged() && !r.isRendered(record) { // it may even be like the source object, which it is not to be
		version = converge.VersionOf([]byte("changed " + version.String()))
	}
	if record.Annotations[argocd.AnnotationMirrorRules] != r.rules {
		version = byOtherRules
	}
	if r.finalizersPatch(record) != nil { // the source is asked for it, and then it has none
		version = converge.VersionOf([]byte("finalizers"))
	}
	if record.Annotations[argocd.AnnotationClosed] != r.closed { // likewise
		version = converge.VersionOf([]byte("closed " + version.String()))
	}
	return converge.State{UID: record.SourceUID(), Version: version}
}

// isRendered reports whether render leaves an object as it is.
func (r objectReplica) isRendered(record *argocd.Record) bool {
	key, _ := r.keyOf(record)
	return record.IsLeftBy(func(c argocd.Content) (argocd.Content, error) { return r.render(key, c) })
}

// isCandidate reports whether an object could be a replica object of this facet, by its name and its secret type.
func (r objectReplica) isCandidate(record *argocd.Record) bool {
	_, ok := r.keyOf(record)
	return ok && (r.secretType == "" || record.SecretType() == r.secretType) && !r.isForeign(record)
}

// isForeign reports whether an object can never have been a replica object of this facet, whatever its annotations say: it is a
// Secret that Argo CD or Kubernetes uses for something else. It is neither changed nor deleted.
func (r objectReplica) isForeign(record *argocd.Record) bool {
	return r.secretType != "" && record.IsForeignSecret()
}

// hasOwnAnnotations reports whether an object has all of ownAnnotations.
func (r objectReplica) hasOwnAnnotations(record *argocd.Record) bool {
	for annotation, mine := range r.ownAnnotations {
		if record.Annotations[annotation] != mine {
			return false
		}
	}
	return true
}

// otherAgent returns the agent that an object belongs to, empty if it is this one or none.
func (r objectReplica) otherAgent(record *argocd.Record) string {
	if theirs := r.adoption.otherAgent(&record.Head); theirs != "" {
		return theirs
	}
	for annotation, mine := range r.ownAnnotations {
		if theirs := record.Annotations[annotation]; theirs != "" && theirs != mine {
			return theirs
		}
	}
	return ""
}

func (r objectReplica) place(key converge.Key) (types.NamespacedName, error) {
	name, err := r.name(key)
	return types.NamespacedName{Namespace: r.namespace, Name: name}, err
}

// get returns the object under a key.
func (r objectReplica) get(key converge.Key) (*argocd.Record, bool) {
	id, err := r.place(key)
	if err != nil {
		return nil, false
	}
	return r.Store.Get(id)
}

// Recall returns what was last applied, if the object is still that and applying it again would not make it anything else.
func (r objectReplica) Recall(key converge.Key) (converge.Object, bool) {
	record, ok := r.get(key)
	if !ok || record.Deleting || r.replicaStateOf(record) == (converge.State{}) {
		return converge.Object{}, false
	}
	payload, _, err := record.Content().Encode()
	if err != nil || !record.IsUnchanged() || record.Annotations[argocd.AnnotationClosed] != r.closed || !r.isRendered(record) {
		return converge.Object{}, false
	}
	r.sourceRefs.note(key, &record.Head)
	return converge.Object{State: r.replicaStateOf(record), Payload: payload}, true
}

// errFixed means that a Secret cannot be changed to what it should be.
var errFixed = errors.New("the Secret is immutable; it is created again")

// isFixed reports whether a Secret cannot be changed to what it should be, since somebody has made it immutable. The ConfigMap of
// GPG keys is never deleted.
func (r objectReplica) isFixed(record *argocd.Record, want argocd.Content) bool {
	return r.secretType != "" && record.Immutable && !maps.Equal(record.Content().Data, want.Data)
}

// Apply implements converge.Replica.
func (r objectReplica) Apply(ctx context.Context, key converge.Key, obj converge.Object) (converge.State, error) {
	id, content, err := r.want(key, obj)
	if err != nil {
		return converge.State{}, fmt.Errorf("%w: %w", converge.ErrRefused, err)
	}
	_, version, err := content.Encode()
	if err != nil {
		return converge.State{}, err
	}
	marks := map[string]string{argocd.AnnotationSourceUID: obj.UID, argocd.AnnotationApplied: argocd.Applied(obj.Version, version)}
	maps.Copy(marks, r.adoption.annotations())
	maps.Copy(marks, r.ownAnnotations)
	if r.closed != "" {
		marks[argocd.AnnotationClosed] = r.closed
	}
	if r.rules != "" {
		marks[argocd.AnnotationMirrorRules] = r.rules
	}
	create := func() (*argocd.Record, error) {
		return r.create(ctx, &argocd.Object{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: id.Namespace, Name: id.Name, Labels: content.Labels,
				Annotations: copyAnnotations(nil, content.Annotations, marks),
			},
			Type: content.Type, Spec: content.Spec, Data: content.Data, BinaryData: content.BinaryData,
		})
	}
	record, exists := r.Store.Get(id)
	if !exists {
		// Of Secrets, those whose label somebody took away are there and are not followed.
		if record, err = create(); !errors.Is(err, errExists) {
			return r.noteSource(key, record, err), err
		}
	}
	record, err = r.changeFrom(ctx, id, record, func(record *argocd.Record) (argocd.Patch, error) {
		if record == nil {
			return nil, errors.New("the object is gone; it is created again")
		}
		if err := r.mayChange(key, record, content); err != nil {
			return nil, err
		}
		if r.isFixed(record, content) {
			return nil, errFixed
		}
		return append(r.finalizersPatch(record), contentDifference(record, content, marks)...), nil
	})
	if errors.Is(err, errFixed) {
		outdated := record.UID
		_, err = r.removeFrom(ctx, id, record, func(record *argocd.Record) bool { return record.UID == outdated },
			func(*argocd.Record) argocd.Patch { return nil })
		if err == nil {
			record, err = create()
		}
	}
	return r.noteSource(key, record, err), err
}

// noteSource remembers the source object of a replica object that was written, and returns its state.
func (r objectReplica) noteSource(key converge.Key, record *argocd.Record, err error) converge.State {
	if err == nil && record != nil {
		r.sourceRefs.note(key, &record.Head)
	}
	return r.replicaStateOf(record)
}

// want returns where a replica object is and what it should be.
func (r objectReplica) want(key converge.Key, obj converge.Object) (types.NamespacedName, argocd.Content, error) {
	var content argocd.Content
	if obj.UID == "" {
		return types.NamespacedName{}, content, errors.New("it came without the UID of its source object: nothing could remove the replica object")
	}
	if err := strictjson.Unmarshal(obj.Payload, &content); err != nil {
		return types.NamespacedName{}, content, fmt.Errorf("decode the object: %w", err)
	}
	id, err := r.place(key)
	if err != nil {
		return id, content, err
	}
	content, err = r.render(key, content)
	return id, content, err
}

// mayChange returns why an object that is there may not become what the other side says, nil if it may.
func (r objectReplica) mayChange(key converge.Key, record *argocd.Record, want argocd.Content) error {
	if err := r.adoption.errIfOtherAgents(&record.Head); err != nil {
		return err
	}
	switch {
	case r.takeOver != nil && record.SourceUID() != "" && !record.Deleting && r.takeOver(record):
		return nil
	case record.Deleting && r.finalizersPatch(record) == nil:
		return errors.New("the object is being deleted; it is created again when that is over")
	case r.isForeign(record):
		return fmt.Errorf("%w: there is %s %q already, of the type %q and the use %q, which is no repository's: rename or delete one of the two",
			converge.ErrRefused, r.Client.Kind(), record.Name.Name, record.Content().Type, record.SecretType())
	case r.sourceRefs.sourceUID(key, &record.Head) != "", r.hasOwnAnnotations(record) && sameBut(record.Content(), want):
	case !r.adopt, record.Labels[argocd.LabelIgnore] == "true":
		return fmt.Errorf("%w: there is %s %q already, which is no replica object: rename or delete one of the two",
			converge.ErrRefused, r.Client.Kind(), record.Name.Name)
	case !isEmpty(record.Content()):
		if err := r.adoption.errIfKept("the "+r.Client.Kind(), r.adoption.Adoption, record.Annotations, want.Annotations); err != nil {
			return fmt.Errorf("%w: %w", converge.ErrRefused, err)
		}
	}
	if theirs := r.otherAgent(record); theirs != "" {
		return fmt.Errorf("%w: %s %q is the replica object of another agent, %q: rename one of the two",
			converge.ErrRefused, r.Client.Kind(), record.Name.Name, theirs)
	}
	return nil
}

// isEmpty reports whether there is nothing in an object, such as the ConfigMap of GPG keys that Argo CD is installed with.
func isEmpty(c argocd.Content) bool { return len(c.Spec)+len(c.Data)+len(c.BinaryData) == 0 }

// sameBut reports whether two contents are the same but for their annotations. What is so on a spoke was a replica object,
// whatever somebody took from it, or might as well be one. On the hub, which has objects of its own, it also has to say whose
// replica object it is.
func sameBut(a, b argocd.Content) bool {
	return a.Type == b.Type && maps.Equal(a.Labels, b.Labels) && bytes.Equal(a.Spec, b.Spec) && maps.Equal(a.Data, b.Data) &&
		maps.Equal(a.BinaryData, b.BinaryData)
}

// contentDifference returns the patch that gives a replica object its content and annotations, nil if it has them. A type is not
// changed.
func contentDifference(record *argocd.Record, want argocd.Content, marks map[string]string) argocd.Patch {
	var patch argocd.Patch
	have := record.Content()
	if !maps.Equal(have.Labels, want.Labels) {
		patch.Replace(orEmpty(want.Labels), "metadata", "labels")
	}
	annotations := copyAnnotations(record.Annotations, want.Annotations, marks)
	if marks[argocd.AnnotationClosed] == "" {
		delete(annotations, argocd.AnnotationClosed)
	}
	if !maps.Equal(record.Annotations, annotations) {
		patch.Replace(annotations, "metadata", "annotations")
	}
	if !bytes.Equal(have.Spec, want.Spec) {
		patch.Replace(want.Spec, "spec")
	}
	if !maps.Equal(have.Data, want.Data) {
		patch.Replace(orEmpty(want.Data), "data")
	}
	if !maps.Equal(have.BinaryData, want.BinaryData) {
		patch.Replace(orEmpty(want.BinaryData), "binaryData")
	}
	return patch
}

// Remove implements converge.Replica.
func (r objectReplica) Remove(ctx context.Context, key converge.Key, uid string) (converge.State, error) {
	id, err := r.place(key)
	if err != nil {
		return converge.State{}, nil //nolint:nilerr // there is nothing where nothing can be
	}
	ours := func(record *argocd.Record) bool {
		from := r.sourceRefs.sourceUID(key, &record.Head)
		return r.isCandidate(record) && r.otherAgent(record) == "" && from != "" && (uid == "" || from == uid)
	}
	if record, ok := r.Store.Get(id); ok && ours(record) && r.adoption.isOtherHubs(&record.Head) {
		return r.replicaStateOf(record), errOtherHub
	}
	detach, retained := r.detach[key]
	if !retained {
		left, err := r.remove(ctx, id, ours, r.finalizersPatch)
		if err == nil && left == nil {
			r.sourceRefs.note(key, nil)
		}
		return r.replicaStateOf(left), err
	}
	left, err := r.change(ctx, id, func(record *argocd.Record) (argocd.Patch, error) {
		if record == nil || !ours(record) {
			return nil, nil
		}
		return detach(record), nil
	})
	if err == nil && (left == nil || left.SourceUID() == "") {
		r.sourceRefs.note(key, nil)
	}
	return r.replicaStateOf(left), err
}

// finalizersPatch returns the patch that removes all finalizers of a mirror, nil if there are none: no controller works them
// off.
func (r objectReplica) finalizersPatch(record *argocd.Record) argocd.Patch {
	if r.ownAnnotations[argocd.AnnotationAgent] == "" {
		return nil
	}
	return removeFinalizers(&record.Head)
}

// detachPatch returns the patch that removes the annotations of a replica object, nil if there are none.
func detachPatch(record *argocd.Record) argocd.Patch {
	var patch argocd.Patch
	for _, a := range []string{
		argocd.AnnotationSourceUID, argocd.AnnotationPrincipalUID, argocd.AnnotationAgent, argocd.AnnotationApplied, argocd.AnnotationClosed,
	} {
		if _, ok := record.Annotations[a]; ok {
			patch.Remove("metadata", "annotations", a)
		}
	}
	return patch
}
