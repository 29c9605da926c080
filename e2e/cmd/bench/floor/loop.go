// Package floor is the same work as the product's, done as plainly as one can: one program that sees both API servers,
// an informer, a work queue, some workers. What it takes is what the API servers take; nothing does better on them without
// doing less. It has no tunnel, no identity, no acknowledgements, and repairs nothing.
package floor

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Side is one of the two places that a Loop keeps equal: a namespace, and how to reach its API server.
type Side struct {
	Config    *rest.Config
	Namespace string
}

// Options say between whom a Loop works, and with how many workers. All are required.
type Options struct {
	Hub, Spoke Side
	Workers    int
}

// Loop makes Applications on one side as they are on the other.
type Loop struct {
	workers  int
	informer cache.SharedIndexInformer
	prefix   string // namespace of the source, with a slash, as keys begin
	target   target
	queue    workqueue.TypedRateLimitingInterface[string]

	mu  sync.Mutex // guards err
	err error      // the last that a write met, for whoever wonders why nothing comes
}

// target is where a loop writes to.
type target interface {
	// learn reads once what is there and returns its names, so that a restart need not write all of it again.
	learn(ctx context.Context) ([]string, error)
	// write makes the target be like the object, nil when there is none of that name.
	write(ctx context.Context, name string, object *unstructured.Unstructured) error
}

// NewDown makes a loop that creates and deletes on the spoke what is created and deleted on the hub.
func NewDown(options Options) (*Loop, error) {
	spoke, err := options.Spoke.client()
	if err != nil {
		return nil, fmt.Errorf("client of the spoke: %w", err)
	}
	return newLoop(options.Hub, &copies{client: spoke, namespace: options.Spoke.Namespace, there: make(map[string]bool)}, options.Workers)
}

// NewUp makes a loop that gives the hub's Applications the statuses that the spoke's have.
func NewUp(options Options) (*Loop, error) {
	hub, err := options.Hub.client()
	if err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	return newLoop(options.Spoke, &statuses{client: hub}, options.Workers)
}

func newLoop(source Side, to target, workers int) (*Loop, error) {
	client, err := dynamic.NewForConfig(source.Config)
	if err != nil {
		return nil, fmt.Errorf("client of the source: %w", err)
	}
	l := &Loop{
		workers: workers, target: to, prefix: source.Namespace + "/",
		informer: dynamicinformer.NewFilteredDynamicInformer(
			client, applications(), source.Namespace, 0, cache.Indexers{}, nil).Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	_, err = l.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    l.enqueue,
		UpdateFunc: func(_, object any) { l.enqueue(object) },
		DeleteFunc: l.enqueue,
	})
	return l, err
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer l.queue.ShutDown()
	defer cancel()
	there, err := l.target.learn(ctx)
	if err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	work.Go(func() { l.informer.RunWithContext(ctx) })
	select {
	case <-l.Synced():
	case <-ctx.Done():
		return nil
	}
	for _, name := range there {
		l.queue.Add(l.prefix + name) // some may be gone from the source
	}
	for range l.workers {
		work.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

// Synced is closed when the loop knows all that there is on its source.
func (l *Loop) Synced() <-chan struct{} { return l.informer.HasSyncedChecker().Done() }

// Err is the last error that a write met; it was tried again.
func (l *Loop) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Loop) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		l.queue.Add(key)
	}
}

// next works on one key; it tells whether there may be more.
func (l *Loop) next(ctx context.Context) bool {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)
	if err := l.reconcile(ctx, key); err != nil && ctx.Err() == nil {
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		l.queue.AddRateLimited(key)
		return true
	}
	l.queue.Forget(key)
	return true
}

func (l *Loop) reconcile(ctx context.Context, key string) error {
	stored, exists, err := l.informer.GetIndexer().GetByKey(key)
	if err != nil {
		return err
	}
	var object *unstructured.Unstructured
	if exists {
		object, _ = stored.(*unstructured.Unstructured)
	}
	return l.target.write(ctx, key[len(l.prefix):], object)
}

func (s Side) client() (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	return client.Resource(applications()).Namespace(s.Namespace), nil
}

func applications() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
}
