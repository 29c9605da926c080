package converge_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// workers is more than one facet can use.
const workers = 128

// facet is the one that pairs share.
const facet = converge.Facet("facet")

// memoryStore is a source or a replica whose answers a test can choose.
type memoryStore struct {
	mu      sync.Mutex
	objects map[converge.Key]converge.Object
	changed func(converge.Key)
	applied map[converge.Key][]time.Time // when Apply was called
	removed map[converge.Key][]string    // the UIDs that Remove was called with
	results map[converge.Key][]converge.Result

	refusedConditions map[converge.Key]bool // what HasRefusedCondition returns

	// apply, remove and reportResult, if set, are called first. Their error is returned.
	apply        func(context.Context, converge.Key, converge.Object) error
	remove       func(context.Context, converge.Key) error
	reportResult func(context.Context, converge.Key, converge.Result) error
}

func newMemoryStore() *memoryStore {
	return &memoryStore{
		objects: map[converge.Key]converge.Object{},
		changed: func(converge.Key) {},
		applied: map[converge.Key][]time.Time{},
		removed: map[converge.Key][]string{},
		results: map[converge.Key][]converge.Result{},
	}
}

// key returns the nth key.
func key(n int) converge.Key { return converge.Key(fmt.Sprintf("k%05d", n)) }

// fill puts n objects without telling anybody.
func (s *memoryStore) fill(n int) {
	for i := range n {
		s.objects[key(i)] = object(fmt.Sprint("uid", i), fmt.Sprint("v", i))
	}
}

// set puts an object, and reports the change unless the object is the same.
func (s *memoryStore) set(k converge.Key, o converge.Object) {
	s.mu.Lock()
	old := s.objects[k]
	s.objects[k] = o
	s.mu.Unlock()
	if old.State != o.State {
		s.changed(k)
	}
}

// drop deletes an object, and reports the change.
func (s *memoryStore) drop(k converge.Key) {
	s.vanish(k)
	s.changed(k)
}

// vanish deletes an object and reports nothing, as when a new list lacks it.
func (s *memoryStore) vanish(k converge.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, k)
}

func (s *memoryStore) states() map[converge.Key]converge.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[converge.Key]converge.State)
	for k, o := range s.objects {
		out[k] = o.State
	}
	return out
}

func (s *memoryStore) has(k converge.Key) bool { return s.Held(k) != converge.State{} }

// appliedAt returns when Apply was called for a key.
func (s *memoryStore) appliedAt(k converge.Key) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.applied[k]...)
}

// resultsOf returns the results that ReportResult got for a key.
func (s *memoryStore) resultsOf(k converge.Key) []converge.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]converge.Result(nil), s.results[k]...)
}

// heal makes all calls succeed from now on.
func (s *memoryStore) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply, s.remove, s.reportResult = nil, nil, nil
}

func (s *memoryStore) All() iter.Seq2[converge.Key, converge.State] {
	return maps.All(s.states())
}

func (s *memoryStore) Project(k converge.Key) (converge.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[k]
	return o, ok
}

func (s *memoryStore) Held(k converge.Key) converge.State {
	o, _ := s.Project(k)
	return o.State
}

func (s *memoryStore) HasRefusedCondition(k converge.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusedConditions[k]
}

func (s *memoryStore) ReportResult(ctx context.Context, k converge.Key, r converge.Result) error {
	s.mu.Lock()
	s.results[k] = append(s.results[k], r)
	reportResult := s.reportResult
	s.mu.Unlock()
	if reportResult == nil {
		return nil
	}
	return reportResult(ctx, k, r)
}

func (s *memoryStore) Apply(ctx context.Context, k converge.Key, o converge.Object) (converge.State, error) {
	s.mu.Lock()
	s.applied[k] = append(s.applied[k], time.Now())
	apply := s.apply
	s.mu.Unlock()
	if apply != nil {
		if err := apply(ctx, k, o); err != nil {
			return converge.State{}, err
		}
	}
	s.set(k, o)
	return o.State, nil
}

func (s *memoryStore) Remove(ctx context.Context, k converge.Key, uid string) (converge.State, error) {
	s.mu.Lock()
	s.removed[k] = append(s.removed[k], uid)
	held, remove := s.objects[k].State, s.remove
	s.mu.Unlock()
	if uid != "" && held.UID != uid {
		return held, nil
	}
	if remove != nil {
		if err := remove(ctx, k); err != nil {
			return converge.State{}, err
		}
	}
	s.drop(k)
	return converge.State{}, nil
}

// recordingObserver is an Observer that remembers.
type recordingObserver struct {
	mu      sync.Mutex
	acks    map[converge.Code]int
	repairs []converge.Result
	removed []converge.Key
	kept    []converge.Result
	paused  []converge.PausedDeletions
	resumed int

	compared int
}

func (w *recordingObserver) Sent(converge.Message, time.Duration) {}

func (w *recordingObserver) Applied(converge.Message, converge.Ack, time.Duration) {}

func (w *recordingObserver) Acknowledged(a converge.Ack, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks[a.Code]++
}

func (w *recordingObserver) Repaired(_ converge.Facet, _ converge.Key, r converge.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repairs = append(w.repairs, r)
}

func (w *recordingObserver) Removed(_ converge.Facet, k converge.Key, r converge.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Code == converge.Refused {
		w.kept = append(w.kept, r)
		return
	}
	w.removed = append(w.removed, k)
}

func (w *recordingObserver) Compared(converge.Facet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compared++
}

func (w *recordingObserver) DeletionsPaused(b converge.PausedDeletions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = append(w.paused, b)
}

func (w *recordingObserver) DeletionsResumed(converge.Facet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumed++
}

func (w *recordingObserver) pausedDeletions() []converge.PausedDeletions {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]converge.PausedDeletions(nil), w.paused...)
}

func (w *recordingObserver) comparedCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.compared
}

func (w *recordingObserver) resumedCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resumed
}

// pipe connects two ends: what is sent arrives, in order, and is remembered.
type pipe struct {
	left, right *pipeEnd
	gone        chan struct{}
	once        sync.Once
	gate        chan struct{} // holds a token while messages may be received
}

type pipeEnd struct {
	pipe    *pipe
	out, in chan converge.Message
	ending

	mu   sync.Mutex
	sent []converge.Message
}

func newPipe(capacity int) *pipe {
	p := &pipe{gone: make(chan struct{}), gate: make(chan struct{}, 1)}
	p.resume()
	a, b := make(chan converge.Message, capacity), make(chan converge.Message, capacity)
	p.left, p.right = &pipeEnd{pipe: p, out: a, in: b, ending: newEnding()}, &pipeEnd{pipe: p, out: b, in: a, ending: newEnding()}
	return p
}

// hold lets nothing be received until resume.
func (p *pipe) hold()   { <-p.gate }
func (p *pipe) resume() { p.gate <- struct{}{} }

func (p *pipe) cut() { p.once.Do(func() { close(p.gone) }) }

// ending is how one end of a connection is closed.
type ending struct {
	closed chan struct{}
	once   *sync.Once
	err    *error
}

func newEnding() ending { return ending{make(chan struct{}), &sync.Once{}, new(error)} }

func (e ending) Close(err error) {
	e.once.Do(func() {
		*e.err = err
		close(e.closed)
	})
}

// deliver receives in a goroutine of its own, as a connection does.
func deliver(recv func() (converge.Message, error), handle func(converge.Message), ended func(error)) {
	go func() {
		for {
			m, err := recv()
			if err != nil {
				ended(err)
				return
			}
			handle(m)
		}
	}()
}

func (e *pipeEnd) Deliver(handle func(converge.Message), ended func(error)) {
	deliver(e.Recv, handle, ended)
}

func (e *pipeEnd) Send(m converge.Message) error {
	select {
	case e.out <- m:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sent = append(e.sent, m)
		return nil
	case <-e.closed:
		return *e.err
	case <-e.pipe.gone:
		return errCut
	}
}

func (e *pipeEnd) Recv() (converge.Message, error) {
	select {
	case <-e.pipe.gate:
		e.pipe.resume()
	case <-e.closed:
		return nil, *e.err
	case <-e.pipe.gone:
		return nil, errCut
	}
	select {
	case m := <-e.in:
		return m, nil
	case <-e.closed:
		return nil, *e.err
	case <-e.pipe.gone:
		return nil, errCut
	}
}

// sentOf returns the messages of one type that an end has sent.
func sentOf[M converge.Message](e *pipeEnd) []M {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []M
	for _, m := range e.sent {
		if m, ok := m.(M); ok {
			out = append(out, m)
		}
	}
	return out
}

// pair is two peers that share one facet, the source on the left. Their stores report changes to them.
type pair struct {
	t        testing.TB
	source   *memoryStore
	replica  *memoryStore
	observer *recordingObserver
	left     *converge.Peer
	right    *converge.Peer
	pipe     *pipe
	sessions sync.WaitGroup
}

// pairOptions is how a pair differs from the default.
type pairOptions struct {
	retain, guardExempt bool
	wrap                func(*memoryStore) converge.Replica // the replica, if it is more than a memoryStore
	accessRevoked       func(key converge.Key, uid string) bool
	withholds           func(key converge.Key) bool
	stale               func(key converge.Key) bool
	resyncEvery         time.Duration
	collateral          converge.Collateral
	confirm             func(ctx context.Context, key converge.Key, uid string) (bool, error)
	guard               func() converge.Guard
}

// newPair returns a pair that runs and is not connected. Everything is over when the test is.
func newPair(tb testing.TB, s pairOptions) *pair {
	tb.Helper()
	if s.resyncEvery == 0 {
		s.resyncEvery = 10000 * time.Hour // no resync may hide a fault
	}
	p := &pair{t: tb, source: newMemoryStore(), replica: newMemoryStore(), observer: newRecordingObserver()}
	p.left = runPeer(tb, converge.Options{
		Sources: map[converge.Facet]converge.SourceConfig{facet: {
			Source: p.source, GuardExempt: s.guardExempt, AccessRevoked: s.accessRevoked, Collateral: s.collateral, Withholds: s.withholds, Confirm: s.confirm,
		}},
		Guard: s.guard, Observer: p.observer, ResyncEvery: s.resyncEvery,
	})
	var replica converge.Replica = p.replica
	if s.wrap != nil {
		replica = s.wrap(p.replica)
	}
	p.right = runPeer(tb, converge.Options{
		Replicas: map[converge.Facet]converge.ReplicaConfig{facet: {Replica: replica, Retain: s.retain, Stale: s.stale}},
		Observer: p.observer, ResyncEvery: s.resyncEvery,
	})
	p.source.changed = func(k converge.Key) { p.left.Changed(facet, k) }
	p.replica.changed = func(k converge.Key) { p.right.Changed(facet, k) }
	tb.Cleanup(p.disconnect)
	return p
}

func newRecordingObserver() *recordingObserver {
	return &recordingObserver{acks: map[converge.Code]int{}}
}

// runPeer returns a peer that runs until the test is over.
func runPeer(tb testing.TB, o converge.Options) *converge.Peer {
	tb.Helper()
	o.Workers = converge.NewWorkers(workers)
	peer := converge.NewPeer(o)
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { o.Workers.Run(ctx) })
	tb.Cleanup(func() { cancel(); running.Wait(); peer.Close() })
	return peer
}

func (p *pair) connect() {
	p.pipe = newPipe(4)
	sessions := runSessions(p.t, p.pipe, p.left, p.right)
	p.sessions.Go(sessions.Wait)
}

// runSessions runs the sessions of two peers until the pipe is cut.
func runSessions(tb testing.TB, pipe *pipe, left, right *converge.Peer) *sync.WaitGroup {
	tb.Helper()
	sessions, ctx := &sync.WaitGroup{}, tb.Context()
	for peer, end := range map[*converge.Peer]*pipeEnd{left: pipe.left, right: pipe.right} {
		sessions.Go(func() {
			_ = peer.RunSession(ctx, end, 0)
			pipe.cut()
		})
	}
	return sessions
}

func (p *pair) disconnect() {
	if p.pipe != nil {
		p.pipe.cut()
	}
	p.sessions.Wait()
}

// requireEqual waits until nothing more happens by itself, and compares both sides.
func (p *pair) requireEqual() {
	p.t.Helper()
	synctest.Wait()
	require.Equal(p.t, p.source.states(), p.replica.states())
	require.Zero(p.t, p.left.Backlog(facet))
}

// script begins a session of a peer with the test itself, which is given its end.
func script(t *testing.T, peer *converge.Peer) *pipeEnd {
	t.Helper()
	pipe := newPipe(4)
	var sessions sync.WaitGroup
	sessions.Go(func() { _ = peer.RunSession(t.Context(), pipe.left, 0) })
	t.Cleanup(func() { pipe.cut(); sessions.Wait() })
	return pipe.right
}

// receive returns the next message of one type, and passes over others.
func receive[M converge.Message](t *testing.T, e *pipeEnd) M {
	t.Helper()
	for {
		m, err := e.Recv()
		require.NoError(t, err)
		if m, ok := m.(M); ok {
			return m
		}
	}
}

// send sends a message of the test's own.
func send(t *testing.T, e *pipeEnd, m converge.Message) {
	t.Helper()
	require.NoError(t, e.Send(m))
}
