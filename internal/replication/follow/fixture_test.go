package follow_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// TestMain lets more tests run at once than there are processors: they wait, for a second and more before each new list.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// timeout is how long a test waits for what must come.
const timeout = 2 * time.Minute

// kept is what is kept of a ConfigMap.
type kept struct {
	id           types.NamespacedName
	uid          types.UID
	revision     string
	value, group string
	before       *kept // what was kept before, as Reduce got it
}

func (k *kept) String() string {
	if k == nil {
		return "none"
	}
	return k.value
}

func reduce(m *corev1.ConfigMap, old *kept) *kept {
	return &kept{id(m.Name), m.UID, m.ResourceVersion, m.Data["value"], m.Labels["group"], old}
}

func id(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

type store = follow.Store[*corev1.ConfigMap, *kept]

// fixture is a store that follows a server.
type fixture struct {
	*apiServer
	store  *store
	events chan string // what the store reported, in order
	last   sync.Map    // the newest *kept reported of each object, by its types.NamespacedName
	fences int
}

// recordDelete has the store know that this program deleted an object.
func (r *fixture) recordDelete(k *kept) { r.store.RecordDelete(k.id, k) }

// startStore runs a store that follows the server, until the test ends.
func startStore(t *testing.T, server *apiServer) *fixture {
	t.Helper()
	r := &fixture{apiServer: server, events: make(chan string, 10000)}
	r.store = follow.New(follow.Options[*corev1.ConfigMap, *kept]{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return server.client.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return server.client.Watch(ctx, o)
		},
		Kind:     &corev1.ConfigMap{},
		Reduce:   reduce,
		Group:    func(k *kept) string { return k.group },
		Changed:  func(old, now *kept) { r.changed(t, old, now) },
		Vanished: func(gone []*kept) { r.vanished(t, gone) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.store.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

// newSynced runs a store that follows an empty server and is synced.
func newSynced(t *testing.T) *fixture {
	t.Helper()
	return startStore(t, newAPIServer(t, true)).synced(t)
}

// newWithObject is newSynced, and then another client creates object a with value 1, which it returns.
func newWithObject(t *testing.T) (*fixture, *kept) {
	t.Helper()
	r := newSynced(t)
	r.create(t, "a", "1")
	r.expectEvents(t, "a: none to 1")
	return r, r.expectValue(t, "a", "1")
}

// changed notes a change, and checks what holds of every change: it follows on the one before, goes forward, and shows.
func (r *fixture) changed(t *testing.T, old, now *kept) {
	t.Helper()
	one := old
	if now != nil {
		one = now
	}
	if last := r.lastOf(one.id); last != old {
		t.Errorf("%s: reported that %v becomes %v, but last it was %v", one.id.Name, old, now, last)
	}
	r.mu.Lock()
	restored := r.restored
	r.mu.Unlock()
	if old != nil && now != nil && number(t, now) <= number(t, old) && !restored {
		t.Errorf("%s: went from revision %s to %s", one.id.Name, old.revision, now.revision)
	}
	if shown, _ := r.store.Get(one.id); shown != now {
		t.Errorf("%s: reported that it becomes %v, but Get returns %v", one.id.Name, now, shown)
	}
	r.last.Store(one.id, now)
	r.events <- fmt.Sprintf("%s: %v to %v", one.id.Name, old, now)
}

// lastOf returns what was reported last of an object, nil if nothing was or if it was gone.
func (r *fixture) lastOf(id types.NamespacedName) *kept {
	last, _ := r.last.Load(id)
	k, _ := last.(*kept)
	return k
}

// vanished notes what vanished, and checks that the store does not have it.
func (r *fixture) vanished(t *testing.T, gone []*kept) {
	t.Helper()
	var names []string
	for _, k := range gone {
		if last := r.lastOf(k.id); last != k {
			t.Errorf("%s: reported that %v vanished, but last it was %v", k.id.Name, k, last)
		}
		if shown, ok := r.store.Get(k.id); ok {
			t.Errorf("%s: vanished, but shows as %v", k.id.Name, shown)
		}
		r.last.Store(k.id, (*kept)(nil))
		names = append(names, k.id.Name)
	}
	slices.Sort(names)
	r.events <- "vanished: " + strings.Join(names, " ")
}

func number(t *testing.T, k *kept) int {
	t.Helper()
	n, err := strconv.Atoi(k.revision)
	if err != nil {
		t.Errorf("%s: revision %q", k.id.Name, k.revision)
	}
	return n
}

// wait waits until the store holds everything.
func (r *fixture) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.True(t, r.store.Wait(ctx), "the store holds everything: %v", r.store.Ready())
}

// synced waits until the store holds everything, and skips the events until then.
func (r *fixture) synced(t *testing.T) *fixture {
	t.Helper()
	r.wait(t)
	for len(r.events) > 0 {
		<-r.events
	}
	return r
}

// expectEvents requires that the store reports these events next.
func (r *fixture) expectEvents(t *testing.T, what ...string) {
	t.Helper()
	for _, w := range what {
		require.Equal(t, w, await(t, r.events))
	}
}

// expectEventsInAnyOrder requires that the store reports these events next, in any order.
func (r *fixture) expectEventsInAnyOrder(t *testing.T, what ...string) {
	t.Helper()
	var events []string
	for range what {
		events = append(events, await(t, r.events))
	}
	require.ElementsMatch(t, what, events)
}

// expectNoEvents requires that the store has no more events of what the server has shown up to now. It creates another
// object, whose event must be the next.
func (r *fixture) expectNoEvents(t *testing.T) {
	t.Helper()
	r.fences++
	name := fmt.Sprint("fence-", r.fences)
	r.create(t, name, "up")
	r.expectEvents(t, name+": none to up")
}

// expectValue requires that the store has this value, or no object if that is "none". It returns what the store has.
func (r *fixture) expectValue(t *testing.T, name, value string) *kept {
	t.Helper()
	k, ok := r.store.Get(id(name))
	require.Equal(t, value, k.String())
	require.Equal(t, value != "none", ok)
	return k
}

// recordWrite gives the store the answer to an own write.
func (r *fixture) recordWrite(t *testing.T, answer *corev1.ConfigMap) *kept {
	t.Helper()
	k, err := r.store.RecordWrite(answer)
	require.NoError(t, err)
	return k
}

// group returns the names of a group's objects.
func (r *fixture) group(group string) []string {
	names := []string{}
	for k := range r.store.Group(group) {
		names = append(names, k.id.Name)
	}
	slices.Sort(names)
	return names
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(timeout):
		require.FailNow(t, "nothing came")
	}
	panic("not reached")
}

// eachAPIServer runs the test against API servers that stream lists and against ones that do not.
func eachAPIServer(t *testing.T, test func(t *testing.T, server *apiServer)) {
	t.Helper()
	for name, streaming := range map[string]bool{"streaming lists": true, "plain lists": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newAPIServer(t, streaming))
		})
	}
}
