package facets

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
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
//
// From an application that is not an agent's any more it takes what that agent wrote of its operations, see [IntentIDAssigner.Changed].
type IntentIDAssigner struct {
	applications Applications
	owners       Owners
	logger       *slog.Logger
	queue        workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu sync.Mutex
	// left has the applications that were seen to leave their agents. Guarded by mu.
	left map[types.NamespacedName]struct{}
	// strays are applications that show what an agent reported and are not its, by that agent. Whether they ever were is known
	// when it connects: another principal may look after them. Guarded by mu.
	strays map[types.NamespacedName]string
}

// Owners say whose the hub's applications are.
type Owners interface {
	// OwnerOf returns the agent whose an application is, empty if it is none's, and whether it is shared with that agent at present.
	OwnerOf(app *argocd.App) (agent string, isShared bool)
	// HasConnected reports whether an agent has connected.
	HasConnected(agent string) bool
}

// NewIntentIDAssigner returns an assigner for the hub's applications.
func NewIntentIDAssigner(applications Applications, owners Owners, logger *slog.Logger) *IntentIDAssigner {
	return &IntentIDAssigner{
		applications: applications,
		owners:       owners,
		logger:       logger,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "intent-ids"},
		),
		left:   make(map[types.NamespacedName]struct{}),
		strays: make(map[types.NamespacedName]string),
	}
}

// Changed says that an application was created (old is nil), changed or deleted (now is nil): it may ask for something, or may not
// be the agent's any more that it was. It does not block.
//
// An application may go over to another agent, or to a controller of the hub's. A display copy of an operation goes then, and so
// do the operation's state and the history: a rollback to what one agent wrote into a history must not deploy that anywhere else.
// What a person asked for and no agent has done goes along, unless it brings sources or manifests, which may be of that history.
func (a *IntentIDAssigner) Changed(old, now *argocd.App) {
	if now == nil {
		a.forget(old.Name)
		return
	}
	owner, _ := a.owners.OwnerOf(now)
	stray := withoutOthers(now, owner) != nil
	if old != nil && stray {
		if before, _ := a.owners.OwnerOf(old); before != "" && before != owner {
			a.note(now.Name, "")
		}
	}
	switch of := now.Status.ShownFor(); {
	case a.need(now, "") != nil:
		a.queue.Add(now.Name)
	case stray && of != "":
		a.note(now.Name, of)
	}
}

// Connected says that an agent has connected.
func (a *IntentIDAssigner) Connected(agent string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, of := range a.strays {
		if of == agent {
			delete(a.strays, name)
			a.queue.Add(name)
		}
	}
}

// note notes that an application has left its agent, or is a stray of one.
func (a *IntentIDAssigner) note(name types.NamespacedName, strayOf string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strayOf == "" {
		a.left[name] = struct{}{}
	} else {
		a.strays[name] = strayOf
	}
}

func (a *IntentIDAssigner) forget(name types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.left, name)
	delete(a.strays, name)
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
		return a.need(app, rand.Text()), nil
	})
	if err != nil && ctx.Err() == nil {
		a.logger.Warn("Failed to assign intent ID; retrying", "application", id, "error", err)
		a.queue.AddRateLimited(id)
		return
	}
	a.queue.Forget(id)
	a.forget(id)
}

// need returns the patch that an application needs, nil if none. id is for what is asked.
func (a *IntentIDAssigner) need(app *argocd.App, id string) argocd.Patch {
	agent, isShared := a.owners.OwnerOf(app)
	patch := withoutOthers(app, agent)
	switch {
	case patch == nil && isShared:
		return withIntentIDs(app, agent, id)
	case patch != nil && (isShared || a.hasLeft(app) || a.owners.HasConnected(app.Status.ShownFor())):
		return patch
	}
	return nil
}

// hasLeft reports whether an application was seen to leave its agent.
func (a *IntentIDAssigner) hasLeft(app *argocd.App) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, left := a.left[app.Name]
	return left
}

// isAskedOf reports whether an operation of that name is asked of an agent.
func isAskedOf(name, agent string) bool {
	of, _, named := strings.Cut(name, "/")
	return !named || of == agent
}

// withoutOthers returns the patch that takes from an application what other agents than its own wrote of its operations, and
// what was asked of them, nil if there is nothing.
func withoutOthers(app *argocd.App, agent string) argocd.Patch {
	var patch argocd.Patch
	other := app.Status.ShownFor()
	if other == agent {
		other = ""
	}
	if other != "" {
		app.Status.RemoveReport(&patch)
	}
	mirror, intent := argocd.OperationInfo(app.Operation, argocd.InfoMirror), argocd.OperationInfo(app.Operation, argocd.InfoIntent)
	switch {
	case mirror != "" && (agent == "" || !isAskedOf(mirror, agent)):
		patch.Remove("operation")
	case intent == "" && other != "" && app.Operation != nil && argocd.BringsContent(app.Operation):
		patch.Remove("operation")
	case intent == "" || isAskedOf(intent, agent):
	case argocd.BringsContent(app.Operation):
		patch.Remove("operation")
	default:
		if operation, err := argocd.WithoutInfo(app.Operation, argocd.InfoIntent); err == nil {
			patch.Replace(operation, "operation")
		}
	}
	return patch
}

// withIntentIDs returns the patch that assigns an ID to what is asked of an agent's application and has none, nil if nothing is.
func withIntentIDs(app *argocd.App, agent, id string) argocd.Patch {
	var patch argocd.Patch
	if app.Operation != nil && argocd.OperationInfo(app.Operation, argocd.InfoIntent) == "" &&
		argocd.OperationInfo(app.Operation, argocd.InfoMirror) == "" {
		if operation, err := argocd.WithInfo(app.Operation, argocd.InfoIntent, agent+"/"+id); err == nil {
			patch.Replace(operation, "operation")
		}
	}
	if kind, named, asked := refreshOf(app); asked && named == "" {
		patch.Replace(cmp.Or(kind, "normal")+"/"+id, "metadata", "annotations", argocd.AnnotationRefresh)
	}
	return patch
}
