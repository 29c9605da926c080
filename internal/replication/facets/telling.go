package facets

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Telling tells people of originals that the other side could not take, and that are no applications, which say so themselves:
// in the log, and if the other side refuses one, by an Event about it.
type Telling struct {
	Logger *slog.Logger
	// Warn writes an Event.
	Warn func(ctx context.Context, about corev1.ObjectReference, reason, message string) error

	mu     sync.Mutex
	events map[event]time.Time // that were written of late, by when. Guarded by mu
}

// event is an Event that is not to be written at every comparison.
type event struct {
	agent, message string
	about          types.UID
}

// remind is how long an Event does for a refusal that goes on. API servers forget them after an hour.
const remind = 30 * time.Minute

// isDue reports whether an Event is to be written, and takes note that it is.
func (t *Telling) isDue(e event) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if at, ok := t.events[e]; ok && now.Sub(at) < remind {
		return false
	}
	maps.DeleteFunc(t.events, func(_ event, at time.Time) bool { return now.Sub(at) >= remind })
	if t.events == nil {
		t.events = make(map[event]time.Time)
	}
	t.events[e] = now
	return true
}

// Tell tells that an agent, or the hub if that is empty, could not take an object.
func (t *Telling) Tell(ctx context.Context, agent string, kind Kind, r *argocd.Record, result converge.Result) {
	logger := t.Logger.With("kind", string(kind), "name", r.Name.Name, "reason", result.Reason)
	who, reason := "The hub", "RefusedByHub"
	if agent != "" {
		logger, who, reason = logger.With("agent", agent), "Agent "+agent, "RefusedByAgent"
	}
	switch again := result.Code == converge.Retry; {
	case again && agent == "":
		logger.Warn("The hub could not take an object yet, and is asked again")
		return
	case again:
		logger.Warn("An agent could not take an object yet, and is asked again")
		return
	case agent == "":
		logger.Warn("The hub refuses an object")
	default:
		logger.Warn("An agent refuses an object")
	}
	about := corev1.ObjectReference{
		APIVersion: kind.apiVersion(), Kind: string(kind), Namespace: r.Name.Namespace, Name: r.Name.Name, UID: r.UID,
	}
	message := shorten(who + " refuses it: " + result.Reason)
	if !t.isDue(event{agent, message, r.UID}) {
		return
	}
	if err := t.Warn(ctx, about, reason, message); err != nil && ctx.Err() == nil {
		logger.Warn("Write an Event", "error", err)
	}
}
