package facets

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Note is a condition of a hub's application that its principal sets, in words of its own, where no agent can: one for each
// application. It is known by how its message begins.
type Note struct{ kind refusal }

// noteKinds are how the messages of notes begin, by the mapping of the principal: several may share one hub, and each sets and
// clears its own. What is true of one mapping says nothing of another's.
var noteKinds = map[string]refusal{"namespace": "Mapping by namespace: ", "destination": "Mapping by destination: "} //nolint:gochecknoglobals // a constant

// NoteOf returns the note of principals with that mapping.
func NoteOf(mapping string) Note { return Note{noteKinds[mapping]} }

// Of returns what an application's note says, empty if it has none.
func (n Note) Of(app *argocd.App) string {
	for _, c := range app.Status.AgentConditions {
		if n.kind.owns(c) {
			return c.Message[len(n.kind):]
		}
	}
	return ""
}

// patch returns the patch that makes an application's note say that, nil if it does.
func (n Note) patch(app *argocd.App, says string) argocd.Patch {
	var patch argocd.Patch
	if says == "" {
		n.kind.clear(app, &patch)
	} else {
		n.kind.set(app, &patch, says)
	}
	return patch
}

const (
	// notesPerSecond bounds the writes of notes: an agent that is away may have ten thousand applications.
	notesPerSecond = 50
	noteWorkers    = 4
)

// NotesOptions configure Notes.
type NotesOptions struct {
	Note         Note
	Applications Applications
	// AgentOf returns the agent that an application is meant for, empty if for none. Agents take turns.
	AgentOf func(app *argocd.App) string
	// Want returns what an application's note should say now, empty for none; and whether that deserves an Event.
	Want func(app *argocd.App) (says string, event bool)
	// Agent is called when the time of an agent has come that ChangedAgent was told of.
	Agent func(agent string)
	// Noted is told of a note that deserved an Event, when it has been set.
	Noted func(app *argocd.App, says string)
	// Warn writes an Event; nil for none.
	Warn   WarnFunc
	Logger *slog.Logger
}

// Notes keeps the notes of a hub's applications as they should be.
type Notes struct {
	options NotesOptions
	limit   *rate.Limiter
	queue   workqueue.TypedRateLimitingInterface[noted]
}

// noted is an application of an agent or, without a name of one, the agent.
type noted struct {
	agent string
	app   types.NamespacedName
}

// NewNotes returns notes that nobody keeps until Run runs.
func NewNotes(o NotesOptions) *Notes {
	const name = "application-conditions"
	return &Notes{
		options: o, limit: rate.NewLimiter(notesPerSecond, notesPerSecond),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[noted](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[noted]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[noted]{
					Name: name,
					Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[noted]{
						Name: name, Queue: newFairQueue(func(item noted) string { return item.agent }),
					}),
				}),
			},
		),
	}
}

// Changed says that the note of an application may have to change, after a while. It does not block.
func (n *Notes) Changed(app *argocd.App, after time.Duration) {
	if says, _ := n.options.Want(app); says != n.options.Note.Of(app) {
		if says == "" {
			after = 0 // what is over is taken back at once
		}
		n.queue.AddAfter(noted{agent: n.options.AgentOf(app), app: app.Name}, after)
	}
}

// ChangedAgent has Agent called after a while. It does not block.
func (n *Notes) ChangedAgent(agent string, after time.Duration) {
	n.queue.AddAfter(noted{agent: agent}, after)
}

// Run keeps notes until the context ends.
func (n *Notes) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, n.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range noteWorkers {
		workers.Go(func() {
			for {
				item, shutdown := n.queue.Get()
				if shutdown {
					return
				}
				n.keep(ctx, item)
				n.queue.Done(item)
			}
		})
	}
	workers.Wait()
}

func (n *Notes) keep(ctx context.Context, item noted) {
	if item.app.Name == "" {
		n.options.Agent(item.agent)
		return
	}
	said, event := "", false
	app, err := n.options.Applications.change(ctx, item.app, func(app *argocd.App) (argocd.Patch, error) {
		said = ""
		if app == nil {
			return nil, nil
		}
		says, deserves := n.options.Want(app)
		patch := n.options.Note.patch(app, says)
		if patch == nil {
			return nil, nil
		}
		said, event = says, deserves
		return patch, n.limit.Wait(ctx)
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		n.options.Logger.Warn("Failed to write the principal's condition; retrying", "application", item.app, "error", err)
		n.queue.AddRateLimited(item)
		return
	case said != "" && event && app != nil:
		n.options.Noted(app, said)
		if n.options.Warn != nil {
			if err := n.options.Warn(ctx, applicationReference(app), "NoAgent", said); err != nil && ctx.Err() == nil {
				n.options.Logger.Warn("Failed to create Event", "error", err)
			}
		}
	}
	n.queue.Forget(item)
}
