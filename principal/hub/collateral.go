package hub

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// collateral decides of each object that goes whether somebody deleted it, or whether it goes with its namespace or with the definition
// of its kind. Nothing on the object says so. But either is marked as being deleted before the first of its objects is, so whoever
// asks for both after that learns it.
type collateral struct {
	api    rest.Interface
	logger *slog.Logger
	wake   signal.Signal

	mu        sync.Mutex
	known     map[string]decision // by UID: objects that are going or undecided, and those that were taken along. Guarded by mu
	along     int                 // how many of known were taken along. Guarded by mu
	waiting   []undecidedDeletion // whose objects are undecided. Guarded by mu
	explained bool                // that the API server cannot be asked was logged. decide's own
}

var _ converge.Collateral = (*collateral)(nil)

// decision is what is known of an object that is going or gone.
type decision struct {
	verdict converge.Verdict
	gone    bool
}

// undecidedDeletion are objects that are going, or were seen to be gone, and what is to be done once it is known why.
type undecidedDeletion struct {
	objects []deletedObject
	gone    bool
	then    func()
}

// deletedObject is one of them, with the paths of what it may go with. A kind that is Kubernetes' own has no definition.
type deletedObject struct{ uid, namespace, definition string }

func newCollateral(api rest.Interface, logger *slog.Logger) *collateral {
	return &collateral{api: api, logger: logger, wake: signal.New(), known: make(map[string]decision)}
}

// definitionPath returns the path of the definition of Argo CD's objects of this name.
func definitionPath(plural string) string {
	return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + "." + argocd.GroupVersion.Group
}

// deletedApplications are applications as deleted ones.
func deletedApplications(apps ...*argocd.App) []deletedObject {
	var all []deletedObject
	for _, app := range apps {
		all = append(all, deletedObject{string(app.UID), namespacePath(app.Name.Namespace), definitionPath(argocd.Applications().Plural)})
	}
	return all
}

// deletedRecords are other objects as such.
func deletedRecords(kind facets.Kind, records ...*argocd.Record) []deletedObject {
	definition := ""
	if kind == facets.Project {
		definition = definitionPath(argocd.Projects().Plural)
	}
	var all []deletedObject
	for _, r := range records {
		all = append(all, deletedObject{string(r.UID), namespacePath(r.Name.Namespace), definition})
	}
	return all
}

// whenDecided calls then once it is known why objects are going, or are gone; at once if it is known already.
func (c *collateral) whenDecided(gone bool, objects []deletedObject, then func()) {
	if c.note(undecidedDeletion{objects, gone, then}) {
		c.wake.Give()
		return
	}
	then()
}

// note notes objects that go, and reports whether it is to be found out why.
func (c *collateral) note(d undecidedDeletion) bool {
	if c.api == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	undecided := false
	for _, object := range d.objects {
		if k, ok := c.known[object.uid]; ok && k.verdict != converge.Undecided {
			c.set(object.uid, k.verdict, d.gone)
			continue
		}
		undecided = true
		c.set(object.uid, converge.Undecided, d.gone)
	}
	if undecided {
		c.waiting = append(c.waiting, d)
	}
	return undecided
}

// set notes the verdict about an object. What is gone and was deleted by somebody need not be remembered. c.mu is held.
func (c *collateral) set(uid string, v converge.Verdict, gone bool) {
	if c.known[uid].verdict == converge.TakenAlong {
		c.along--
	}
	if gone && v == converge.Deliberate {
		delete(c.known, uid)
		return
	}
	if v == converge.TakenAlong {
		c.along++
	}
	c.known[uid] = decision{v, gone}
}

// Of implements converge.Collateral.
func (c *collateral) Of(uid string, there bool) converge.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[uid]; ok {
		return k.verdict
	}
	if there && c.api != nil { // and whenDecided is about to be called
		return converge.Undecided
	}
	return converge.Deliberate
}

// Any implements converge.Collateral.
func (c *collateral) Any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.along > 0 || len(c.waiting) > 0
}

// Release implements converge.Collateral.
func (c *collateral) Release(uids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range uids {
		if k, ok := c.known[uid]; ok {
			c.set(uid, converge.Deliberate, k.gone)
		}
	}
}

// askAgain is how long to wait before the API server is asked again.
const askAgain = time.Second

// Run finds out why objects go, until the context ends.
func (c *collateral) Run(ctx context.Context) {
	again := time.NewTimer(askAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-again.C:
		}
		if !c.decide(ctx) {
			again.Reset(askAgain)
		}
	}
}

// take returns what waits.
func (c *collateral) take() []undecidedDeletion {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.waiting
	c.waiting = nil
	return waiting
}

// decide finds out about all that waits, and reports whether it could. Each namespace and definition is asked for once.
func (c *collateral) decide(ctx context.Context) bool {
	waiting := c.take()
	asked := make(map[string]bool) // paths => whether what is there is going or gone
	for i, d := range waiting {
		for _, object := range d.objects {
			if err := c.ask(ctx, asked, object.namespace, object.definition); err != nil {
				c.putBack(waiting[i:])
				c.explain(ctx, err)
				return false
			}
			c.conclude(object.uid, asked[object.namespace] || asked[object.definition], d.gone)
		}
		d.then()
	}
	c.explained = false
	return true
}

// conclude notes whether an object was taken along.
func (c *collateral) conclude(uid string, along, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[uid]
	switch {
	case ok && k.verdict != converge.Undecided: // it was decided when it began to go
		c.set(uid, k.verdict, gone)
	case along:
		c.set(uid, converge.TakenAlong, gone)
	default:
		c.set(uid, converge.Deliberate, gone || k.gone)
	}
}

// ask finds out whether the objects at these paths are being deleted, or are gone, unless it was asked before. They are asked for at the
// same time: a deletion waits for the answers.
func (c *collateral) ask(ctx context.Context, asked map[string]bool, paths ...string) error {
	paths = slices.DeleteFunc(paths, func(path string) bool { _, known := asked[path]; return known || path == "" })
	going := make([]bool, len(paths))
	group, ctx := errgroup.WithContext(ctx)
	for i, path := range paths {
		group.Go(func() error {
			object, err := metadataOf(ctx, c.api, path)
			going[i] = object == nil || object.DeletionTimestamp != nil
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, path := range paths {
		asked[path] = going[i]
	}
	return nil
}

func (c *collateral) putBack(waiting []undecidedDeletion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(waiting, c.waiting...)
}

// explain logs, once, that nobody knows why objects go.
func (c *collateral) explain(ctx context.Context, err error) {
	if !c.explained && ctx.Err() == nil {
		c.logger.Warn("Deletions wait until the API server says whether a namespace or CustomResourceDefinition goes with its objects; retrying. "+
			"The principal has to be allowed to get namespaces, and Argo CD's customresourcedefinitions by name", "error", err)
	}
	c.explained = true
}
