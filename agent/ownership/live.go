package ownership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	// generations is how far above an object its application may be, and maxRequests how many objects are looked at to find
	// it.
	generations = 5
	maxRequests = 16
	// questions is how many objects are looked for at a time.
	questions = 16
	// An answer holds for a moment only: a page of the UI asks for the same object several times.
	yesHolds = 5 * time.Second
	noHolds  = time.Second
	// answers is how many are kept.
	answers = 4096
)

// live finds the application of objects that are in no tree, by what is written on them and on their owners.
type live struct {
	trees  *Trees
	client metadata.Interface
	slots  chan struct{}

	mu     sync.Mutex
	recent map[Object]answer // guarded by mu
}

type answer struct {
	owner Owner
	until time.Time
}

func newLive(t *Trees) (*live, error) {
	bounded := rest.CopyConfig(t.options.Config)
	bounded.Timeout = timeout
	client, err := metadata.NewForConfig(bounded)
	return &live{trees: t, client: client, slots: make(chan struct{}, questions), recent: make(map[Object]answer)}, err
}

// lookup returns the application of a named object, the zero Owner if it has none.
func (l *live) lookup(ctx context.Context, o Object) (Owner, error) {
	if owner, ok := l.recall(o); ok {
		return owner, nil
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return Owner{}, ctx.Err()
	}
	s := search{live: l, left: maxRequests, settings: &tracking{}}
	if found, ok := l.trees.settings.Get(types.NamespacedName{Namespace: l.trees.options.Namespace, Name: settingsName}); ok {
		s.settings = found
	}
	owner, err := s.object(ctx, o, generations)
	if err != nil {
		return Owner{}, fmt.Errorf("the API server: %w", err)
	}
	l.remember(o, owner)
	return owner, nil
}

func (l *live) recall(o Object) (Owner, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.recent[o]
	return a.owner, ok && time.Now().Before(a.until)
}

func (l *live) remember(o Object, owner Owner) {
	holds := noHolds
	if owner.Application != "" {
		holds = yesHolds
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) >= answers {
		clear(l.recent)
	}
	l.recent[o] = answer{owner, time.Now().Add(holds)}
}

// search is one look for an application.
type search struct {
	live     *live
	settings *tracking
	left     int // requests that may be made
}

// object looks at an object, and at so many generations of owners above it.
func (s *search) object(ctx context.Context, o Object, above int) (Owner, error) {
	found, err := s.live.trees.kinds.find(ctx, o)
	if err != nil || len(found) == 0 || s.left == 0 {
		return Owner{}, err
	}
	s.left--
	k := found[0]
	resource := schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.resource}
	var object *metav1.PartialObjectMetadata
	if k.namespaced {
		object, err = s.live.client.Resource(resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	} else {
		object, err = s.live.client.Resource(resource).Get(ctx, o.Name, metav1.GetOptions{})
	}
	switch {
	case unknowable(err):
		return Owner{}, nil
	case err != nil:
		return Owner{}, err
	case o.UID != "" && string(object.UID) != o.UID:
		return Owner{}, nil // another object of that name
	}
	if name := s.settings.owner(object, k); name != "" && s.live.trees.options.Exists(name) {
		return Owner{Application: name, Root: true}, nil
	}
	if above == 0 {
		return Owner{}, nil
	}
	return s.owners(ctx, object, above)
}

// owners looks at the owners of an object.
func (s *search) owners(ctx context.Context, object *metav1.PartialObjectMetadata, above int) (Owner, error) {
	for _, ref := range object.OwnerReferences {
		version, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil || ref.UID == "" {
			continue
		}
		o := Object{
			Group: version.Group, Kind: ref.Kind, Namespace: object.Namespace, Name: ref.Name, UID: string(ref.UID),
		}
		owner, err := s.owner(ctx, o, above)
		if err != nil || owner.Application != "" {
			return Owner{Application: owner.Application}, err
		}
	}
	return Owner{}, nil
}

// owner looks for an owner in the trees, which have just been read, and else at the object itself.
func (s *search) owner(ctx context.Context, o Object, above int) (Owner, error) {
	found, err := s.live.trees.kinds.find(ctx, o)
	if err != nil || len(found) == 0 {
		return Owner{}, err
	}
	if !found[0].namespaced {
		o.Namespace = ""
	}
	q, err := s.live.trees.question(ctx, o)
	if err != nil {
		return Owner{}, err
	}
	if owner, _, _ := s.live.trees.ask(q); owner.Application != "" {
		return owner, nil
	}
	return s.object(ctx, o, above-1)
}

// unknowable says that there is no such object, or none that the agent may see.
func unknowable(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) ||
		errors.As(err, &status) && status.Status().Code == 406 // an aggregated API may have no metadata to give
}
