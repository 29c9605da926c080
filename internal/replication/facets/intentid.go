package facets

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// idWorkers is how many applications get IDs at a time. A webhook may ask for the refresh of a thousand at once.
const idWorkers = 8

// An ID that could not be assigned is retried after firstRetry, and ever later up to lastRetry: somebody waits for a sync.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// IntentIDAssigner assigns an ID to each operation and refresh that somebody asks for on the hub. Without one it is not sent.
// Several may run, one in each replica of the principal: an ID is only assigned to a revision that has none.
type IntentIDAssigner struct {
	applications Applications
	logger       *slog.Logger
	queue        workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// NewIntentIDAssigner returns an assigner for the hub's applications.
func NewIntentIDAssigner(applications Applications, logger *slog.Logger) *IntentIDAssigner {
	return &IntentIDAssigner{
		applications: applications,
		logger:       logger,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "intent-ids"},
		),
	}
}

// Changed says that an application may ask for something. It does not block.
func (a *IntentIDAssigner) Changed(app *argocd.App) {
	if withIntentIDs(app, "") != nil {
		a.queue.Add(app.Name)
	}
}

// Run assigns IDs until the context ends.
func (a *IntentIDAssigner) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, a.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range idWorkers {
		workers.Go(func() {
			for {
				id, shutdown := a.queue.Get()
				if shutdown {
					return
				}
				a.assignOne(ctx, id)
				a.queue.Done(id)
			}
		})
	}
	workers.Wait()
}

func (a *IntentIDAssigner) assignOne(ctx context.Context, id types.NamespacedName) {
	_, err := a.applications.change(ctx, id, func(app *argocd.App) (argocd.Patch, error) {
		if app == nil {
			return nil, nil
		}
		return withIntentIDs(app, rand.Text()), nil
	})
	if err != nil && ctx.Err() == nil {
		a.logger.Warn("Failed to assign intent ID; retrying", "application", id, "error", err)
		a.queue.AddRateLimited(id)
		return
	}
	a.queue.Forget(id)
}

// withIntentIDs returns the patch that assigns an ID to what is asked of an application and has none, nil if nothing is.
func withIntentIDs(app *argocd.App, name string) argocd.Patch {
	var patch argocd.Patch
	if app.Operation != nil && argocd.OperationInfo(app.Operation, argocd.InfoIntent) == "" &&
		argocd.OperationInfo(app.Operation, argocd.InfoMirror) == "" {
		if operation, err := argocd.WithInfo(app.Operation, argocd.InfoIntent, name); err == nil {
			patch.Replace(operation, "operation")
		}
	}
	if kind, named, asked := refreshOf(app); asked && named == "" {
		patch.Replace(cmp.Or(kind, "normal")+"/"+name, "metadata", "annotations", argocd.AnnotationRefresh)
	}
	return patch
}
