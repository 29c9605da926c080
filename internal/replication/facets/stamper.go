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

// stampers is how many applications are stamped at a time. A webhook may ask for the refresh of a thousand at once.
const stampers = 8

// A name that could not be given is tried again after stampFirst, and ever later up to stampLast: somebody waits for a sync.
const (
	stampFirst = 100 * time.Millisecond
	stampLast  = 30 * time.Second
)

// Stamper gives each operation and refresh that somebody asks for on the hub a name, before which it is not sent. Several
// may run, one in each replica of the principal: a name is only given to the revision that had none.
type Stamper struct {
	applications Applications
	logger       *slog.Logger
	queue        workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// NewStamper returns a stamper for the hub's applications.
func NewStamper(a Applications, logger *slog.Logger) *Stamper {
	return &Stamper{
		applications: a,
		logger:       logger,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](stampFirst, stampLast),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "intent-ids"},
		),
	}
}

// Changed says that an application may ask for something. It does not block.
func (s *Stamper) Changed(app *argocd.App) {
	if stamp(app, "") != nil {
		s.queue.Add(app.Name)
	}
}

// Run stamps until the context ends.
func (s *Stamper) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range stampers {
		workers.Go(func() {
			for {
				id, shutdown := s.queue.Get()
				if shutdown {
					return
				}
				s.stampOne(ctx, id)
				s.queue.Done(id)
			}
		})
	}
	workers.Wait()
}

func (s *Stamper) stampOne(ctx context.Context, id types.NamespacedName) {
	_, err := s.applications.change(ctx, id, func(app *argocd.App) (argocd.Patch, error) {
		if app == nil {
			return nil, nil
		}
		return stamp(app, rand.Text()), nil
	})
	if err != nil && ctx.Err() == nil {
		s.logger.Warn("Name what is asked of an application", "application", id, "error", err)
		s.queue.AddRateLimited(id)
		return
	}
	s.queue.Forget(id)
}

// stamp returns the patch that names what is asked of an application and has no name, nil if nothing is.
func stamp(app *argocd.App, name string) argocd.Patch {
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
