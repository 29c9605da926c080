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

// Reporter reports source objects that the other side could not apply: in the log, and if the other side refused one, by an
// Event about it. It is not for Applications, which show that by a condition.
type Reporter struct {
	Logger *slog.Logger
	// Warn writes an Event.
	Warn func(ctx context.Context, about corev1.ObjectReference, reason, message string) error

	mu     sync.Mutex
	events map[event]time.Time // the Events that were written lately, by when. Guarded by mu
}

// event is an Event that must not be written at every resync.
type event struct {
	agent, message string
	about          types.UID
}

// eventInterval is the time between two Events about the same refusal. API servers forget Events after an hour.
const eventInterval = 30 * time.Minute

// isDue reports whether an Event is to be written, and notes that it is.
func (r *Reporter) isDue(e event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if at, ok := r.events[e]; ok && now.Sub(at) < eventInterval {
		return false
	}
	maps.DeleteFunc(r.events, func(_ event, at time.Time) bool { return now.Sub(at) >= eventInterval })
	if r.events == nil {
		r.events = make(map[event]time.Time)
	}
	r.events[e] = now
	return true
}

// Report reports that an agent, or the hub if agent is empty, could not apply an object.
func (r *Reporter) Report(ctx context.Context, agent string, kind Kind, object *argocd.Record, result converge.Result) {
	logger := r.Logger.With("kind", string(kind), "name", object.Name.Name, "reason", result.Reason)
	who, reason := "The hub", "RefusedByHub"
	if agent != "" {
		logger, who, reason = logger.With("agent", agent), "Agent "+agent, "RefusedByAgent"
	}
	switch again := result.Code == converge.Retry; {
	case again && agent == "":
		logger.Warn("Hub failed to apply object; retrying")
		return
	case again:
		logger.Warn("Agent failed to apply object; retrying")
		return
	case agent == "":
		logger.Warn("Hub refused object")
	default:
		logger.Warn("Agent refused object")
	}
	about := corev1.ObjectReference{
		APIVersion: kind.apiVersion(), Kind: string(kind), Namespace: object.Name.Namespace, Name: object.Name.Name, UID: object.UID,
	}
	message := shorten(who + " refused it: " + result.Reason)
	if !r.isDue(event{agent, message, object.UID}) {
		return
	}
	if err := r.Warn(ctx, about, reason, message); err != nil && ctx.Err() == nil {
		logger.Warn("Failed to create Event", "error", err)
	}
}
