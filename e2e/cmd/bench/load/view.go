package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Sighting is an Application as a View saw it last.
type Sighting struct {
	Exists   bool
	Revision string // of its status
	At       time.Time
}

// View watches the Applications of a Site and keeps the time of what it sees.
type View struct {
	informer cache.Controller

	mu       sync.Mutex // guards all below
	seen     map[string]Sighting
	expected map[*Expectation]struct{}
}

// Watch returns a view of a site that has seen all that is there, and that watches until stop is called.
func Watch(ctx context.Context, site Site) (v *View, stop func(), err error) {
	if v, err = newView(site); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { v.informer.RunWithContext(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	if err := v.waitComplete(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return v, stop, nil
}

func newView(site Site) (*View, error) {
	client, err := restClient(site.Cluster.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("view of %s: %w", site.Cluster.Name, err)
	}
	v := &View{seen: make(map[string]Sighting), expected: make(map[*Expectation]struct{})}
	_, v.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "applications", site.Namespace, fields.Everything()),
		ObjectType:    &application{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { v.observe(object, true) },
			UpdateFunc: func(_, object any) { v.observe(object, true) },
			DeleteFunc: func(object any) { v.observe(object, false) },
		},
	})
	return v, nil
}

// waitComplete returns when the view has seen all that there was when it began.
func (v *View) waitComplete(ctx context.Context) error {
	select {
	case <-v.informer.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("first list of the Applications: %w", ctx.Err())
	}
}

func (v *View) observe(object any, exists bool) {
	now := time.Now()
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	app, ok := object.(*application)
	if !ok {
		return
	}
	sighting := Sighting{Exists: exists, Revision: app.Status.Sync.Revision, At: now}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen[app.Name] = sighting
	for expectation := range v.expected {
		expectation.checkLocked(app.Name, sighting)
	}
}

// Expectation waits until something was seen of each of some Applications.
type Expectation struct {
	view  *View
	holds func(Sighting) bool

	missing map[string]struct{} // guarded by the view's mu
	met     map[string]time.Time
	done    chan struct{} // closed when nothing is missing
}

// Expect begins to wait until the condition has held once for each of the Applications. What was seen before counts.
func (v *View) Expect(holds func(Sighting) bool, names ...string) *Expectation {
	e := &Expectation{
		view: v, holds: holds, done: make(chan struct{}),
		missing: make(map[string]struct{}, len(names)), met: make(map[string]time.Time, len(names)),
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.expected[e] = struct{}{}
	for _, name := range names {
		e.missing[name] = struct{}{}
	}
	for _, name := range names {
		e.checkLocked(name, v.seen[name])
	}
	return e
}

func (e *Expectation) checkLocked(name string, sighting Sighting) {
	if _, missing := e.missing[name]; !missing || !e.holds(sighting) {
		return
	}
	delete(e.missing, name)
	e.met[name] = sighting.At
	if len(e.missing) == 0 {
		close(e.done)
		delete(e.view.expected, e)
	}
}

// Wait returns when each Application was first seen as expected. The Expectation is of no use after.
func (e *Expectation) Wait(ctx context.Context) (map[string]time.Time, error) {
	select {
	case <-e.done:
		return e.met, nil
	case <-ctx.Done():
	}
	e.view.mu.Lock()
	defer e.view.mu.Unlock()
	delete(e.view.expected, e)
	for name := range e.missing {
		return nil, fmt.Errorf("wait for %d Applications, %d never came, such as %s: %w",
			len(e.met)+len(e.missing), len(e.missing), name, ctx.Err())
	}
	return e.met, nil // the last one came together with the end of ctx
}

// Present holds when the Application exists.
func Present(s Sighting) bool { return s.Exists }

// Absent holds when it does not.
func Absent(s Sighting) bool { return !s.Exists }

// Showing holds when the Application has the status.
func Showing(status Status) func(Sighting) bool {
	return func(s Sighting) bool { return s.Exists && s.Revision == status.Revision }
}

// application is as much of an Application as a view looks at: to decode more would take time from those who are measured.
type application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		Sync struct {
			Revision string `json:"revision"`
		} `json:"sync"`
	} `json:"status"`
}

// DeepCopyObject makes it a runtime.Object.
func (a *application) DeepCopyObject() runtime.Object {
	out := *a
	a.DeepCopyInto(&out.ObjectMeta)
	return &out
}

type applicationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []application `json:"items"`
}

// DeepCopyObject makes it a runtime.Object.
func (l *applicationList) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]application, len(l.Items))
	for i := range l.Items {
		out.Items[i] = l.Items[i]
		l.Items[i].DeepCopyInto(&out.Items[i].ObjectMeta)
	}
	return &out
}

func restClient(config *rest.Config) (*rest.RESTClient, error) {
	version := schema.GroupVersion{Group: "argoproj.io", Version: "v1alpha1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind("Application"), &application{})
	scheme.AddKnownTypeWithName(version.WithKind("ApplicationList"), &applicationList{})
	metav1.AddToGroupVersion(scheme, version)
	config.APIPath, config.GroupVersion = "/apis", &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}
