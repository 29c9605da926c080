package e2e_test

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// side is one object on one cluster.
type side struct {
	cluster   *lab.Cluster
	selection cluster.Selection
}

func (s side) get(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object, err := s.cluster.Get(t.Context(), s.selection)
	require.NoError(t, err)
	require.NotNil(t, object, "%s on %s", s.selection, s.cluster.Name)
	return object
}

// edit changes the object, as somebody with kubectl would.
func (s side) edit(t *testing.T, change func(*unstructured.Unstructured)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout) // to be of use in a cleanup too
	defer cancel()
	require.NoError(t, s.cluster.Update(ctx, s.selection, change))
}

// delete deletes the object, if there is one.
func (s side) delete(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout) // as above
	defer cancel()
	require.NoError(t, s.cluster.Delete(ctx, s.selection))
}

// becomes waits until the object exists and the conditions hold for it, and returns it as it was then.
func (s side) becomes(t *testing.T, conditions ...condition) *unstructured.Unstructured {
	t.Helper()
	return expect(t, s.cluster, s.selection, func(object *unstructured.Unstructured) bool {
		if object == nil {
			return false
		}
		for _, holds := range conditions {
			if !holds(object) {
				return false
			}
		}
		return true
	})
}

func (s side) vanishes(t *testing.T) {
	t.Helper()
	expectGone(t, s.cluster, s.selection)
}

// twin is an Application of a test's own: as it is on the hub, and as its agent keeps it on the spoke.
type twin struct {
	hub, spoke side
	declared   argocd.Application // the hub's
}

// newTwin declares an Application, of the lab's Git repository, of one of the lab's agents. It waits to be told to sync
// unless it is changed to do so before create.
func newTwin(agent, name string) *twin {
	name = strings.TrimPrefix(unique(agent+"/"+name), agent+"/")
	return &twin{
		hub:   side{shared.Hub, argocd.Named(agent, name)},
		spoke: side{shared.Spoke(agent), argocd.Named(lab.Namespace, name)},
		declared: argocd.Application{
			Namespace: agent, Name: name, RepoURL: shared.Git.URL, Path: lab.ConfigPath,
			Destination: agent, Into: name, Manual: true,
		},
	}
}

// automated has the Application synced without being told to.
func (a *twin) automated() *twin {
	a.declared.Manual = false
	return a
}

// create creates the Application on the hub, changed as the caller likes, and deletes it when the test is over.
func (a *twin) create(t *testing.T, changes ...change) *twin {
	t.Helper()
	return a.createOn(t, a.hub, changes...)
}

// createOn is create for either side.
func (a *twin) createOn(t *testing.T, s side, changes ...change) *twin {
	t.Helper()
	object := argocd.New(a.declared)
	for _, change := range changes {
		change(object)
	}
	create(t, s.cluster, s.selection, object)
	return a
}

// arrives waits until the spoke has the Application of this very object on the hub.
func (a *twin) arrives(t *testing.T, conditions ...condition) *unstructured.Unstructured {
	t.Helper()
	uid := string(a.hub.get(t).GetUID())
	return a.spoke.becomes(t, append(conditions, annotated(sourceUID, uid))...)
}

// configMap is what the Application deploys.
func (a *twin) configMap() side {
	return core(a.spoke.cluster, "configmaps", a.declared.Into, "config")
}

// unique returns a name that no other test has, nor the same one when it is run again on the same lab.
func unique(name string) string {
	const mine = "of a test: "
	return strings.TrimPrefix(shared.Host.Unique(mine+name), mine)
}

// site is an agent of a test's own, on a spoke of the lab: it has a namespace of its name there, at which no Argo CD
// looks, and one on the hub.
type site struct {
	name  string
	spoke *lab.Cluster
	agent *lab.Agent
}

// newSite makes a site of a name like this one. It starts the agent and returns when that lives. The options need not
// name it, nor its spoke.
func newSite(t *testing.T, name string, options lab.AgentOptions) *site {
	t.Helper()
	return startSite(t, unique(name), options)
}

// startSite is newSite for exactly this name.
func startSite(t *testing.T, name string, options lab.AgentOptions) *site {
	t.Helper()
	s := prepareSite(t, name, options)
	require.NoError(t, s.agent.Start(t.Context()))
	return s
}

// prepareSite makes all of a site but starts nothing.
func prepareSite(t *testing.T, name string, options lab.AgentOptions) *site {
	t.Helper()
	if options.Spoke == "" {
		options.Spoke = "b"
	}
	if options.Name == "" {
		options.Name = name
	}
	options.Args = append([]string{"--namespace=" + name}, options.Args...)
	spoke := shared.Spoke(options.Spoke)
	require.NoError(t, shared.RegisterAgent(t.Context(), name))
	require.NoError(t, spoke.Apply(t.Context(), namespace(name)))
	agent, err := shared.NewAgent(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, agent.Stop) })
	return &site{name: name, spoke: spoke, agent: agent}
}

// connected returns when the agent's present life has connected.
func (s *site) connected(t *testing.T) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, s.agent.WaitConnected(ctx))
	return s
}

// newTwin declares an Application of the site's agent.
func (s *site) newTwin(name string) *twin {
	a := newTwin(s.name, name)
	a.declared.Into = a.declared.Name + "-resources" // the site's own name is that of its agent's namespace, which is closed
	a.spoke = side{s.spoke, argocd.Named(s.name, a.declared.Name)}
	return a
}

// core selects an object of Kubernetes itself.
func core(c *lab.Cluster, resource, namespace, name string) side {
	return side{c, cluster.Selection{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespace: namespace, Name: name,
	}}
}

func namespace(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

// stopped stops a program, which must end by itself when it is asked to.
func stopped(t *testing.T, stop func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	require.NoError(t, stop(ctx))
}

// newPrincipal starts a principal of a test's own.
func newPrincipal(t *testing.T, options lab.PrincipalOptions) *lab.Principal {
	t.Helper()
	principal, err := shared.NewPrincipal(t.Context(), options)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, principal.Start(ctx))
	t.Cleanup(func() { stopped(t, principal.Stop) })
	return principal
}

// logging is a program whose log is kept.
type logging interface {
	WaitLog(ctx context.Context, text string) error
	WaitLogFrom(ctx context.Context, mark int64, text string) error
}

// says waits until a program has written all of the texts since it was started last, in any order.
func says(t *testing.T, program logging, texts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for _, text := range texts {
		require.NoError(t, program.WaitLog(ctx, text))
	}
}

// saysNow is says for what was written after a mark.
func saysNow(t *testing.T, program logging, mark int64, texts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for _, text := range texts {
		require.NoError(t, program.WaitLogFrom(ctx, mark, text))
	}
}

// recorder remembers every revision of an object.
type recorder struct {
	t    *testing.T
	side side

	mu   sync.Mutex // guards seen
	seen []*unstructured.Unstructured
}

// watch records all revisions of an object from now until the test is over.
func watch(t *testing.T, s side) *recorder {
	t.Helper()
	w := &recorder{t: t, side: s}
	ctx, cancel := context.WithCancel(context.Background())
	began, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(over)
		_, _ = s.cluster.Wait(ctx, s.selection, func(object *unstructured.Unstructured) bool { // it ends with ctx only
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, object)
			once.Do(func() { close(began) })
			return false
		})
	}()
	t.Cleanup(func() { cancel(); <-over })
	select {
	case <-began:
	case <-time.After(timeout):
		t.Fatalf("%s on %s cannot be watched", s.selection, s.cluster.Name)
	}
	return w
}

// catchUp waits until the recorder has seen the object as it is now.
func (w *recorder) catchUp() {
	w.t.Helper()
	now, err := w.side.cluster.Get(w.t.Context(), w.side.selection)
	require.NoError(w.t, err)
	if now == nil {
		return
	}
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.seen, func(seen *unstructured.Unstructured) bool {
			return seen != nil && revision(seen) >= revision(now)
		})
	}, timeout, 10*time.Millisecond)
}

func revision(object *unstructured.Unstructured) uint64 {
	n, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64) // which is one, of a real API server
	return n
}

// distinct returns the values that a function found in the revisions so far, each once, in order; empty ones are left out.
func (w *recorder) distinct(value func(*unstructured.Unstructured) string) []string {
	w.t.Helper()
	w.catchUp()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	known := map[string]bool{"": true}
	for _, object := range w.seen {
		if object == nil {
			continue
		}
		if v := value(object); !known[v] {
			known[v] = true
			out = append(out, v)
		}
	}
	return out
}

// change is what somebody does to an object.
type change = func(*unstructured.Unstructured)

// label returns the change that sets a label, or removes it if the value is empty.
func label(key, value string) change {
	return func(object *unstructured.Unstructured) {
		object.SetLabels(with(object.GetLabels(), key, value))
	}
}

// annotate returns the change that sets an annotation, or removes it if the value is empty.
func annotate(key, value string) change {
	return func(object *unstructured.Unstructured) {
		object.SetAnnotations(with(object.GetAnnotations(), key, value))
	}
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = make(map[string]string)
	}
	if value == "" {
		delete(m, key)
	} else {
		m[key] = value
	}
	return m
}

// finalize returns the change that makes the finalizers be these.
func finalize(finalizers ...string) change {
	return func(object *unstructured.Unstructured) { object.SetFinalizers(finalizers) }
}

// spec returns the change that sets a field of the spec.
func spec(value any, path ...string) change {
	return func(object *unstructured.Unstructured) { set(object, value, append([]string{"spec"}, path...)...) }
}

// condition is what may hold for an object that exists.
type condition = func(*unstructured.Unstructured) bool

func labelled(key, value string) condition {
	return func(object *unstructured.Unstructured) bool { return object.GetLabels()[key] == value }
}

func annotated(key, value string) condition {
	return func(object *unstructured.Unstructured) bool { return object.GetAnnotations()[key] == value }
}

func finalized(finalizers ...string) condition {
	return func(object *unstructured.Unstructured) bool {
		return strings.Join(object.GetFinalizers(), " ") == strings.Join(finalizers, " ")
	}
}

// has holds for an object in which there is this text at a path; the empty text stands for nothing there.
func has(want string, path ...string) condition {
	return func(object *unstructured.Unstructured) bool { return text(object, path...) == want }
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}

// refused holds for an Application of which the hub shows that its spoke refuses it, for reasons in which all of the
// texts are.
func refused(texts ...string) condition {
	return func(object *unstructured.Unstructured) bool {
		message, there := agentError(object)
		for _, text := range texts {
			there = there && strings.Contains(message, text)
		}
		return there
	}
}

// degraded holds for an Application that the hub shows as Degraded for reasons in which all of the texts are.
func degraded(texts ...string) condition {
	return func(object *unstructured.Unstructured) bool {
		there := text(object, "status", "health", "status") == "Degraded"
		for _, part := range texts {
			there = there && strings.Contains(text(object, "status", "health", "message"), part)
		}
		return there
	}
}

// accepted holds for an Application of which the hub shows no such thing.
func accepted(object *unstructured.Unstructured) bool {
	_, there := agentError(object)
	return !there
}

// agentError returns the message of the first condition by which the hub shows what the spoke refuses.
func agentError(object *unstructured.Unstructured) (string, bool) {
	for message := range agentErrors(object) {
		return message, true
	}
	return "", false
}

// agentErrors yields the messages of all of them.
func agentErrors(object *unstructured.Unstructured) iter.Seq[string] {
	return func(yield func(string) bool) {
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "AgentError" {
				if message, _ := c["message"].(string); !yield(message) {
					return
				}
			}
		}
	}
}

func present(object *unstructured.Unstructured) bool { return object != nil }

func deployments() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}
