package fleet

import (
	"context"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// memory is a side of a facet, source or replica, that has no cluster behind it.
type memory struct {
	changed func(int) // how many objects more are held, or fewer

	mu      sync.Mutex // guards objects
	objects map[converge.Key]converge.Object
}

var (
	_ converge.Source  = &memory{}
	_ converge.Replica = &memory{}
)

// All implements both sides.
func (m *memory) All() iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		m.mu.Lock()
		objects := maps.Clone(m.objects)
		m.mu.Unlock()
		for key, object := range objects {
			if !yield(key, object.State) {
				return
			}
		}
	}
}

// Project implements converge.Source.
func (m *memory) Project(key converge.Key) (converge.Object, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	object, there := m.objects[key]
	return object, there
}

// ReportResult implements converge.Source.
func (m *memory) ReportResult(context.Context, converge.Key, converge.Result) error { return nil }

// HasRefusedCondition implements converge.Source.
func (m *memory) HasRefusedCondition(converge.Key) bool { return false }

// Held implements converge.Replica.
func (m *memory) Held(key converge.Key) converge.State {
	object, _ := m.Project(key)
	return object.State
}

// Apply implements converge.Replica. Of the object the payload is forgotten.
func (m *memory) Apply(_ context.Context, key converge.Key, object converge.Object) (converge.State, error) {
	object.Payload = nil
	m.put(key, object)
	return object.State, nil
}

// Remove implements converge.Replica.
func (m *memory) Remove(_ context.Context, key converge.Key, uid string) (converge.State, error) {
	if held := m.Held(key); uid != "" && held.UID != uid {
		return held, nil
	}
	m.put(key, converge.Object{})
	return converge.State{}, nil
}

// put holds an object; the zero one is none.
func (m *memory) put(key converge.Key, object converge.Object) {
	m.mu.Lock()
	before := len(m.objects)
	if object.State == (converge.State{}) {
		delete(m.objects, key)
	} else {
		if m.objects == nil {
			m.objects = make(map[converge.Key]converge.Object)
		}
		m.objects[key] = object
	}
	change := len(m.objects) - before
	m.mu.Unlock()
	if m.changed != nil {
		m.changed(change)
	}
}

// silent is an observer that tells nobody.
type silent struct{}

func (silent) Sent(converge.Message, time.Duration)                   {}
func (silent) Acknowledged(converge.Ack, time.Duration)               {}
func (silent) Applied(converge.Message, converge.Ack, time.Duration)  {}
func (silent) Repaired(converge.Facet, converge.Key, converge.Result) {}
func (silent) Removed(converge.Facet, converge.Key, converge.Result)  {}
func (silent) DeletionsPaused(converge.PausedDeletions)               {}
func (silent) DeletionsResumed(converge.Facet)                        {}
func (silent) Compared(converge.Facet)                                {}
