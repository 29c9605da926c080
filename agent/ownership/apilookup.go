package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	// maxOwnerDepth and maxRequests bound the owners above an object that one lookup follows and the objects that it reads.
	maxOwnerDepth = 5
	maxRequests   = 16
	// maxLookups bounds the lookups at a time.
	maxLookups = 16
	// foundTTL and notFoundTTL are how long results are cached: a page of the UI requests the same object several times.
	foundTTL    = 5 * time.Second
	notFoundTTL = time.Second
	// maxCached bounds the cached results.
	maxCached = 4096
)

// apiLookup finds the Application of objects that are in no tree, by the tracking marks on them and on their owners.
type apiLookup struct {
	index  *Index
	client metadata.Interface
	slots  chan struct{}
	cached *cache.LRUExpireCache // an Owner of each Object
}

func newAPILookup(x *Index) (*apiLookup, error) {
	bounded := rest.CopyConfig(x.options.Config)
	bounded.Timeout = timeout
	client, err := metadata.NewForConfig(bounded)
	return &apiLookup{index: x, client: client, slots: make(chan struct{}, maxLookups), cached: cache.NewLRUExpireCache(maxCached)}, err
}

// lookup returns the Application of an object with a name, the zero Owner if it has none.
func (l *apiLookup) lookup(ctx context.Context, o Object) (Owner, error) {
	if cached, ok := l.cached.Get(o); ok {
		owner := cached.(Owner) //nolint:forcetypeassert // nothing else is in it
		if owner.Application == "" || l.index.options.Shared(owner.Application) {
			return owner, nil
		}
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return Owner{}, ctx.Err()
	}
	s := search{lookup: l, requestsLeft: maxRequests, settings: &tracking{}}
	if found, ok := l.index.settings.Get(types.NamespacedName{Namespace: l.index.options.Namespace, Name: settingsName}); ok {
		s.settings = found
	}
	owner, err := s.object(ctx, o, maxOwnerDepth)
	if err != nil {
		return Owner{}, fmt.Errorf("the API server: %w", err)
	}
	ttl := notFoundTTL
	if owner.Application != "" {
		ttl = foundTTL
	}
	if !s.unshared { // which may change at any time
		l.cached.Add(o, owner, ttl)
	}
	return owner, nil
}

// search is one lookup.
type search struct {
	lookup       *apiLookup
	settings     *tracking
	requestsLeft int
	unshared     bool // an Application was found that is not shared
}

// object checks an object, and so many levels of owners above it.
func (s *search) object(ctx context.Context, o Object, levels int) (Owner, error) {
	found, err := s.lookup.index.kinds.lookup(ctx, o)
	if err != nil || len(found) == 0 || s.requestsLeft == 0 {
		return Owner{}, err
	}
	s.requestsLeft--
	k := found[0]
	resource := schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.resource}
	var object *metav1.PartialObjectMetadata
	if k.namespaced {
		object, err = s.lookup.client.Resource(resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	} else {
		object, err = s.lookup.client.Resource(resource).Get(ctx, o.Name, metav1.GetOptions{})
	}
	switch {
	case notVisible(err):
		return Owner{}, nil
	case err != nil:
		return Owner{}, err
	case o.UID != "" && string(object.UID) != o.UID:
		return Owner{}, nil // another object of that name
	}
	if name := s.settings.owner(object, k); name != "" {
		if s.lookup.index.options.Shared(name) {
			return Owner{Application: name, Root: true}, nil
		}
		s.unshared = true
	}
	if levels == 0 {
		return Owner{}, nil
	}
	return s.owners(ctx, object, levels)
}

// owners checks the owners of an object.
func (s *search) owners(ctx context.Context, object *metav1.PartialObjectMetadata, levels int) (Owner, error) {
	for _, ref := range object.OwnerReferences {
		version, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil || ref.UID == "" {
			continue
		}
		o := Object{
			Group: version.Group, Kind: ref.Kind, Namespace: object.Namespace, Name: ref.Name, UID: string(ref.UID),
		}
		owner, err := s.owner(ctx, o, levels)
		if err != nil || owner.Application != "" {
			return Owner{Application: owner.Application}, err
		}
	}
	return Owner{}, nil
}

// owner finds an owner in the trees, which have just been read, or else checks the object itself.
func (s *search) owner(ctx context.Context, o Object, levels int) (Owner, error) {
	found, err := s.lookup.index.kinds.lookup(ctx, o)
	if err != nil || len(found) == 0 {
		return Owner{}, err
	}
	if !found[0].namespaced {
		o.Namespace = ""
	}
	q, err := s.lookup.index.newQuery(ctx, o)
	if err != nil {
		return Owner{}, err
	}
	if owner, _, _ := s.lookup.index.cachedOwner(q); owner.Application != "" {
		return owner, nil
	}
	s.unshared = s.unshared || s.lookup.index.hidden(q)
	return s.object(ctx, o, levels-1)
}

// notVisible reports that the object does not exist, or that the agent may not see it.
func notVisible(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) ||
		errors.As(err, &status) && status.Status().Code == 406 // an aggregated API may have no metadata to give
}
