package e2e_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	named "github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	caches "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// controller does on a spoke what Argo CD's application controller does, as far as it is shared: it runs operations, refreshes,
// and works off finalizers.
type controller struct {
	fleet   *wholeFleet
	cluster *lab.Cluster
	store   *caches.Store[*argocd.Application, *argocd.App]
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// control runs a controller of a spoke until the test is over.
func (f *wholeFleet) control(t *testing.T, c *lab.Cluster) {
	t.Helper()
	client, err := argocd.NewClient(c.RESTConfig(), argocd.Applications(), argocd.Scope{})
	require.NoError(t, err)
	o := controller{fleet: f, cluster: c, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedItemBasedRateLimiter[types.NamespacedName]())}
	o.store = caches.New(caches.Options[*argocd.Application, *argocd.App]{
		List: client.List, Watch: client.Watch, Kind: argocd.Applications().New(), Reduce: argocd.Reduce(false),
		Changed: func(_, now *argocd.App) {
			if now != nil {
				o.queue.Add(now.Name)
			}
		},
		Vanished: func([]*argocd.App) {},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { o.store.Run(ctx) })
	running.Go(func() {
		for {
			id, over := o.queue.Get()
			if over {
				return
			}
			if o.act(ctx, id) != nil { // it changed, or the API server is away
				o.queue.AddRateLimited(id)
			} else {
				o.queue.Forget(id)
			}
			o.queue.Done(id)
		}
	})
	t.Cleanup(func() {
		cancel()
		o.queue.ShutDown()
		running.Wait()
	})
}

// act does what there is to do for an Application.
func (o controller) act(ctx context.Context, id types.NamespacedName) error {
	app, exists := o.store.Get(id)
	if !exists {
		return nil
	}
	_, refresh := app.Annotations[argocd.AnnotationRefresh]
	if !refresh && app.Operation == nil && (!app.Deleting || len(app.Cascades()) == 0) {
		return nil
	}
	deleting, ran := false, false
	_, err := rewrite(ctx, o.cluster, named.Named(id.Namespace, id.Name), func(object *unstructured.Unstructured) {
		annotate(argocd.AnnotationRefresh, "")(object)
		operation, asked := object.Object["operation"]
		deleting = object.GetDeletionTimestamp() != nil
		if ran = asked && !deleting; ran {
			now := time.Now().UTC().Format(time.RFC3339)
			set(object, map[string]any{
				"phase": "Succeeded", "startedAt": now, "finishedAt": now, "operation": operation,
			}, "status", "operationState")
			delete(object.Object, "operation")
		}
		if deleting {
			object.SetFinalizers(slices.DeleteFunc(object.GetFinalizers(), argocd.IsCascade))
		}
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case deleting:
		o.fleet.pruned.Add(1)
	case ran:
		o.fleet.synced.Add(1)
	case refresh:
		o.fleet.refreshed.Add(1)
	}
	return nil
}
