package converge_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// store is a memory backend: a Source or a Replica that outlives its process, reports its own writes too, and fails on
// demand, also when it did what was asked.
type store struct {
	mu      sync.Mutex
	objects map[converge.Key]converge.Object
	changed func(converge.Key)
	rand    *rand.Rand
	events  []event       // all changes; the revision of each is its place in the list, from one
	more    chan struct{} // closed when there is one more

	// Of a source:
	refusedConditions map[converge.Key]bool

	// Of a replica:
	truth             *store
	failing, refusing int                              // of a hundred applies
	notes             map[converge.Key]converge.Object // what was last applied, kept beside the object
	removed           map[string]bool                  // UIDs of what was removed; no source has one of them again
	returned          []converge.Key                   // what was applied although removed
	lost              []converge.Key                   // what was removed although the source has that very object
}

func newStore(seed uint64) *store {
	return &store{
		objects: map[converge.Key]converge.Object{}, changed: func(converge.Key) {}, more: make(chan struct{}),
		rand: rand.New(rand.NewPCG(seed, 2)), refusedConditions: map[converge.Key]bool{},
		notes: map[converge.Key]converge.Object{}, removed: map[string]bool{},
	}
}

// normal is what the store makes of a payload: as an API server does, it adds a default to some.
func normal(payload string) string {
	if strings.HasSuffix(payload, "1") {
		return payload + "+default"
	}
	return payload
}

func object(uid, payload string) converge.Object {
	b := []byte(payload)
	return converge.Object{State: converge.State{UID: uid, Version: converge.VersionOf(b)}, Payload: b}
}

func (s *store) watch(changed func(converge.Key)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

func (s *store) put(k converge.Key, uid, payload string) converge.State {
	s.mu.Lock()
	o := object(uid, payload)
	s.objects[k] = o
	s.record(k, o)
	changed := s.changed
	s.mu.Unlock()
	changed(k)
	return o.State
}

func (s *store) del(k converge.Key) converge.State {
	s.mu.Lock()
	if _, exists := s.objects[k]; exists {
		s.record(k, converge.Object{})
	}
	delete(s.objects, k)
	delete(s.refusedConditions, k)
	delete(s.notes, k)
	changed := s.changed
	s.mu.Unlock()
	changed(k)
	return converge.State{}
}

// record notes a change for those who watch. s.mu is held.
func (s *store) record(k converge.Key, o converge.Object) {
	s.events = append(s.events, event{k, o, uint64(len(s.events) + 1)})
	close(s.more)
	s.more = make(chan struct{})
}

// next returns the change after a revision, and a closed channel; if there is none yet, one that is closed when there is.
func (s *store) next(revision uint64) (event, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision < uint64(len(s.events)) {
		there := make(chan struct{})
		close(there)
		return s.events[revision], there
	}
	return event{}, s.more
}

// lastOf returns the newest change of a key, the zero event if there was none.
func (s *store) lastOf(k converge.Key) event {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Backward(s.events) {
		if e.key == k {
			return e
		}
	}
	return event{}
}

// revision is that of the newest change.
func (s *store) revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.events))
}

func (s *store) revisionOf(k converge.Key) uint64 { return s.lastOf(k).revision }

// forgetRemoved lets come back what was removed so far.
func (s *store) forgetRemoved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.removed)
}

// content is what the store holds, with the store's own defaults taken away.
func (s *store) content() map[converge.Key]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[converge.Key]string)
	for k, o := range s.objects {
		out[k] = o.UID + " " + strings.TrimSuffix(string(o.Payload), "+default")
	}
	return out
}

func (s *store) All() iter.Seq2[converge.Key, converge.State] {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := maps.Clone(s.objects)
	return func(yield func(converge.Key, converge.State) bool) {
		for k, o := range objects {
			if !yield(k, o.State) {
				return
			}
		}
	}
}

func (s *store) Project(k converge.Key) (converge.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[k]
	return o, ok
}

func (s *store) Held(k converge.Key) converge.State {
	o, _ := s.Project(k)
	return o.State
}

func (s *store) ReportResult(_ context.Context, k converge.Key, r converge.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rand.IntN(10) == 0 {
		return errNotNow
	}
	if _, exists := s.objects[k]; exists && r.Code == converge.Refused {
		s.refusedConditions[k] = true
	} else {
		delete(s.refusedConditions, k)
	}
	return nil
}

func (s *store) HasRefusedCondition(k converge.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusedConditions[k]
}

// recall returns what was last applied, if the object still is that.
func (s *store) recall(k converge.Key) (converge.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note, ok := s.notes[k]
	return note, ok && s.objects[k].State == object(note.UID, normal(string(note.Payload))).State
}

// fate decides about one write: whether it happens, and what it says.
func (s *store) fate() (happens bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := s.rand.IntN(100); {
	case n < s.refusing:
		return false, converge.ErrRefused
	case n < s.refusing+s.failing:
		return s.rand.IntN(2) == 0, errNotNow
	default:
		return true, nil
	}
}

func (s *store) Apply(ctx context.Context, k converge.Key, o converge.Object) (converge.State, error) {
	return s.apply(ctx, k, o, unconditionally)
}

func unconditionally() error { return nil }

// apply is Apply, if check says so when it is done.
func (s *store) apply(ctx context.Context, k converge.Key, o converge.Object, check func() error) (converge.State, error) {
	s.mu.Lock()
	if s.removed[o.UID] {
		s.returned = append(s.returned, k)
	}
	s.mu.Unlock()
	return s.write(ctx, func() converge.State {
		s.mu.Lock()
		s.notes[k] = o
		s.mu.Unlock()
		return s.put(k, o.UID, normal(string(o.Payload)))
	}, check)
}

func (s *store) Remove(ctx context.Context, k converge.Key, uid string) (converge.State, error) {
	if held := s.Held(k); uid != "" && held.UID != uid {
		return held, nil
	}
	return s.remove(ctx, k, unconditionally)
}

// remove is Remove of any UID, if check says so when it is done.
func (s *store) remove(ctx context.Context, k converge.Key, check func() error) (converge.State, error) {
	return s.write(ctx, func() converge.State {
		held := s.Held(k).UID
		s.mu.Lock()
		if s.truth != nil && held != "" && s.truth.Held(k).UID == held {
			s.lost = append(s.lost, k)
		} else {
			s.removed[held] = true
		}
		s.mu.Unlock()
		return s.del(k)
	}, check)
}

func (s *store) write(ctx context.Context, do func() converge.State, check func() error) (converge.State, error) {
	happens, err := s.fate()
	s.mu.Lock()
	wait := time.Duration(s.rand.IntN(20)) * time.Millisecond
	s.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return converge.State{}, ctx.Err()
	}
	if err := check(); err != nil {
		return converge.State{}, err
	}
	var held converge.State
	if happens {
		held = do()
	}
	if err != nil {
		return converge.State{}, err
	}
	return held, nil
}

var errNotNow = errors.New("not this time")
