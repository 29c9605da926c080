package follow

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// reflectorStore is a Store as client-go's Reflector writes to it.
type reflectorStore[R Raw, T comparable] Store[R, T]

func (s *reflectorStore[R, T]) store() *Store[R, T] { return (*Store[R, T])(s) }

// Add takes in an object that the watch brought.
func (s *reflectorStore[R, T]) Add(obj any) error { return s.Update(obj) }

// Update takes in an object that the watch brought.
func (s *reflectorStore[R, T]) Update(obj any) error {
	object, err := s.raw(obj)
	if err == nil {
		_, err = s.store().upsert(object, false)
	}
	return err
}

// raw returns an object by its type.
func (s *reflectorStore[R, T]) raw(obj any) (R, error) {
	object, ok := obj.(R)
	if !ok {
		return object, fmt.Errorf("followed %T, got %T", s.options.Kind, obj)
	}
	return object, nil
}

// Delete takes in that an object was deleted. The watch brings it as it was last, with the revision of its deletion.
func (s *reflectorStore[R, T]) Delete(obj any) error {
	object, err := s.raw(obj)
	if err != nil {
		return err
	}
	revision, err := revisionOf(object)
	if err != nil {
		return err
	}
	id := idOf(object)
	st := s.store()
	defer st.lockObject(id)()
	st.mu.Lock()
	old, ok := st.objects[id]
	if ok && old.revision <= revision {
		st.set(id, old.object, entry[T]{})
	}
	st.newest = max(st.newest, revision)
	if st.tombstones[id].revision <= revision {
		delete(st.tombstones, id)
	}
	st.mu.Unlock()
	st.advance(revision)
	if ok && old.revision <= revision {
		var none T
		st.options.Changed(old.object, none)
	}
	return nil
}

// Replace takes in a new list. What this program wrote after the list was made is kept: the watch will bring it.
func (s *reflectorStore[R, T]) Replace(list []any, resourceVersion string) error {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("resource version of a list: %w", err)
	}
	st := s.store()
	st.rewind(revision)
	there := make(map[types.NamespacedName]bool, len(list))
	for _, obj := range list {
		object, err := s.raw(obj)
		if err != nil {
			return err
		}
		if _, err := st.upsert(object, false); err != nil {
			return err
		}
		there[idOf(object)] = true
	}
	st.relist.Lock()
	defer st.relist.Unlock()
	st.mu.Lock()
	var gone []T
	for id, e := range st.objects {
		if !there[id] && e.revision <= revision {
			gone = append(gone, e.object)
			st.set(id, e.object, entry[T]{})
		}
	}
	for id, e := range st.tombstones {
		if !there[id] && e.revision <= revision {
			delete(st.tombstones, id)
		}
	}
	st.mu.Unlock()
	st.advance(revision)
	if len(gone) > 0 && st.options.Vanished != nil {
		st.options.Vanished(gone)
	}
	select {
	case <-st.synced:
	default:
		close(st.synced)
	}
	st.show(revision)
	return nil
}

// Resync has nothing to do: nothing is reported twice.
func (s *reflectorStore[R, T]) Resync() error { return nil }

// UpdateResourceVersion takes in how far the watch has come. The Reflector calls it after each event.
func (s *reflectorStore[R, T]) UpdateResourceVersion(resourceVersion string) {
	if revision, err := strconv.ParseUint(resourceVersion, 10, 64); err == nil {
		s.store().advance(revision)
		s.store().show(revision)
	}
}
