// Package follow keeps the objects of one kind in memory as the API server has them.
//
// It differs from an informer's cache in four ways. Its own program's writes show in it at once, so that a write can be
// followed by a decision without reading back. Objects are reduced on the way in, so that what nobody needs is not kept.
// Objects that a new list lacks are reported together and not one by one: whoever deletes because of that should know. And an API
// server whose revisions go back, because its etcd was restored from a backup, is believed.
package follow

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// Raw is an object as the API server sends it.
type Raw interface {
	runtime.Object
	metav1.Object
}

// Options say what a Store follows. R is the type that the API server's objects decode to, T what is kept of them.
type Options[R Raw, T comparable] struct {
	// List and Watch ask the API server.
	List  kube.ListFunc
	Watch kube.WatchFunc
	// Kind is an empty object of the kind that is followed.
	Kind R
	// Reduce returns what is kept of an object. old is what was kept of it before, the zero T if nothing.
	Reduce func(object R, old T) T
	// Group, if set, puts objects into groups, by which they can be ranged over.
	Group func(T) string
	// Changed learns of each change, after it shows in the store: created (old is the zero T), changed or deleted (now is
	// the zero T). It must not block. It is called in the order of changes for each object by itself, and for several objects at
	// the same time. It may be nil if nobody needs to learn.
	Changed func(old, now T)
	// Vanished, if set, learns that a new list lacked objects that were there before. They show in the store as deleted.
	Vanished func(gone []T)
}

// Store holds the objects of one kind. All methods may be called from several goroutines.
type Store[R Raw, T comparable] struct {
	options Options[R, T]
	synced  chan struct{}

	mu            sync.RWMutex
	objects       map[types.NamespacedName]entry[T]            // guarded by mu
	groups        map[string]map[types.NamespacedName]struct{} // guarded by mu
	tombstones    map[types.NamespacedName]tombstone           // until the watch or a list shows it too. Guarded by mu
	watchRevision uint64                                       // the newest revision that the watch has brought. Guarded by mu
	newest        uint64                                       // of the changes that show, this program's own too. Guarded by mu
	shown         uint64                                       // up to this revision all that others changed shows. Guarded by mu
	failure       error                                        // why the last list or watch did not work. Guarded by mu

	moved signal.Broadcast // shown has grown

	// relist and objectLocks put the calls of Changed in order. Both are taken before mu, in this order, and held until Changed
	// returns. A change of one object takes relist for reading and one of objectLocks. A new list takes relist for writing.
	// So changes of one object never overlap, none overlaps a new list, and a slow call of Changed delays few other objects.
	relist      sync.RWMutex
	objectLocks [64]sync.Mutex // each for the objects whose names have this hash
	seed        maphash.Seed
}

// lockObject serialises the changes of an object. The caller must call unlock.
func (s *Store[R, T]) lockObject(id types.NamespacedName) (unlock func()) {
	one := &s.objectLocks[maphash.Comparable(s.seed, id)%uint64(len(s.objectLocks))]
	s.relist.RLock()
	one.Lock()
	return func() {
		one.Unlock()
		s.relist.RUnlock()
	}
}

type entry[T comparable] struct {
	object   T
	revision uint64
	uid      types.UID
}

// tombstone remembers an object that this program deleted, as the store last held it. The watch may still bring older events.
type tombstone struct {
	revision uint64
	uid      types.UID
}

// New returns a store that is empty until Run runs.
func New[R Raw, T comparable](o Options[R, T]) *Store[R, T] {
	if o.Changed == nil {
		o.Changed = func(_, _ T) {}
	}
	return &Store[R, T]{
		options:    o,
		synced:     make(chan struct{}),
		seed:       maphash.MakeSeed(),
		objects:    make(map[types.NamespacedName]entry[T]),
		groups:     make(map[string]map[types.NamespacedName]struct{}),
		tombstones: make(map[types.NamespacedName]tombstone),
	}
}

// Run follows the API server until the context ends.
func (s *Store[R, T]) Run(ctx context.Context) {
	lw := kube.ListWatch(
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.options.List(ctx, o)
			s.recordFailure("list", err)
			return list, err
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := s.options.Watch(ctx, o)
			s.recordFailure("watch", err)
			return w, err
		},
	)
	// A Reflector by itself waits for up to a minute between two attempts, which is long for users who wait for a sync.
	backoff := wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second}
	cache.NewReflectorWithOptions(lw, s.options.Kind, (*reflectorStore[R, T])(s), cache.ReflectorOptions{Backoff: &backoff}).RunWithContext(ctx)
}

// Wait waits until the store holds everything that the API server has, and reports whether that came before the end of the context.
func (s *Store[R, T]) Wait(ctx context.Context) bool {
	select {
	case <-s.synced:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ready returns nil once the store holds everything, and otherwise why it does not.
func (s *Store[R, T]) Ready() error {
	select {
	case <-s.synced:
		return nil
	default:
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failure != nil {
		return s.failure
	}
	return fmt.Errorf("the first list of %T is under way", s.options.Kind)
}

// Get returns an object, and whether there is one.
func (s *Store[R, T]) Get(id types.NamespacedName) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.objects[id]
	return e.object, ok
}

// All yields all objects as they were when it was called.
func (s *Store[R, T]) All() iter.Seq[T] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	objects := make([]T, 0, len(s.objects))
	for _, e := range s.objects {
		objects = append(objects, e.object)
	}
	return slices.Values(objects)
}

// Group yields the objects of a group as they were when it was called.
func (s *Store[R, T]) Group(group string) iter.Seq[T] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	objects := make([]T, 0, len(s.groups[group]))
	for id := range s.groups[group] {
		objects = append(objects, s.objects[id].object)
	}
	return slices.Values(objects)
}

// RecordWrite stores the API server's answer to a write of this program, and returns what is kept of it.
func (s *Store[R, T]) RecordWrite(answer R) (T, error) { return s.upsert(answer, true) }

// RecordDelete removes an object that this program deleted, unless the store has another revision of it by now. Later events
// with its UID are ignored.
func (s *Store[R, T]) RecordDelete(id types.NamespacedName, object T) {
	var none T
	defer s.lockObject(id)()
	s.mu.Lock()
	e := s.objects[id]
	erase := e.object == object
	if erase {
		s.set(id, object, entry[T]{})
		s.tombstones[id] = tombstone{e.revision, e.uid}
	}
	s.mu.Unlock()
	if erase {
		s.options.Changed(object, none)
	}
}

// upsert stores an object if it is newer than the stored one, and if this program has not deleted it. A write of this program
// counts only until the watch has passed its revision. After that the watch knows better: the object may be deleted by now.
func (s *Store[R, T]) upsert(object R, own bool) (T, error) {
	revision, err := revisionOf(object)
	if err != nil {
		var none T
		return none, err
	}
	id := idOf(object)
	defer s.lockObject(id)()
	s.mu.RLock()
	old, watchRevision := s.objects[id], s.watchRevision
	tomb, deleted := s.tombstones[id]
	s.mu.RUnlock()
	if !own {
		s.advance(revision)
	}
	if revision <= old.revision || own && revision <= watchRevision || deleted && (revision <= tomb.revision || object.GetUID() == tomb.uid) {
		return s.options.Reduce(object, old.object), nil
	}
	now := s.options.Reduce(object, old.object)
	s.mu.Lock()
	s.set(id, old.object, entry[T]{now, revision, object.GetUID()})
	s.newest = max(s.newest, revision)
	s.mu.Unlock()
	s.options.Changed(old.object, now)
	return now, nil
}

// advance notes how far the watch has come.
func (s *Store[R, T]) advance(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchRevision = max(s.watchRevision, revision)
}

// rewind makes a list count that is older than what the watch has brought: the API server was restored from a backup. What
// the store holds is no newer than such a list then, whatever its revision says.
func (s *Store[R, T]) rewind(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision >= s.watchRevision {
		return
	}
	s.watchRevision, s.newest, s.shown = 0, 0, 0
	clear(s.tombstones)
	for id, e := range s.objects {
		e.revision = 0
		s.objects[id] = e
	}
}

// set replaces an object. s.mu is held.
func (s *Store[R, T]) set(id types.NamespacedName, old T, e entry[T]) {
	var none T
	if old != none {
		s.ungroup(id, old)
	}
	if e.object == none {
		delete(s.objects, id)
		return
	}
	delete(s.tombstones, id)
	s.objects[id] = e
	g := s.group(e.object)
	if s.groups[g] == nil {
		s.groups[g] = make(map[types.NamespacedName]struct{})
	}
	s.groups[g][id] = struct{}{}
}

// ungroup takes an object out of its group. s.mu is held.
func (s *Store[R, T]) ungroup(id types.NamespacedName, object T) {
	g := s.group(object)
	delete(s.groups[g], id)
	if len(s.groups[g]) == 0 {
		delete(s.groups, g)
	}
}

func (s *Store[R, T]) group(object T) string {
	if s.options.Group == nil {
		return ""
	}
	return s.options.Group(object)
}

func (s *Store[R, T]) recordFailure(act string, err error) {
	if err != nil {
		err = fmt.Errorf("%s %T: %w", act, s.options.Kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

func revisionOf(m metav1.Object) (uint64, error) {
	r, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version of %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	return r, nil
}

func idOf(m metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
}
