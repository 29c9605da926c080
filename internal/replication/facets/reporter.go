package facets

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Reporter reports what one side could not apply of the other's, to the users of this one.
type Reporter interface {
	// Object reports a source object that an agent, or the hub if agent is empty, could not apply. Applications show that
	// themselves, by a condition.
	Object(ctx context.Context, agent string, kind Kind, object *argocd.Record, result converge.Result)
	// StatusRefusedHere reports that the hub's API server does not let an agent's status be written.
	StatusRefusedHere(ctx context.Context, agent string, app *argocd.App, reason string)
	// StatusRefusedByHub reports that the hub could not write the status of a spoke's application.
	StatusRefusedByHub(ctx context.Context, app *argocd.App, result converge.Result)
	// Pruned reports an application of the hub's that somebody deleted on the spoke, so that Argo CD pruned its resources, and that was
	// created again without them.
	Pruned(ctx context.Context, app *argocd.App)
	// CountFailedWrite counts a write to this side's own cluster that failed, by one of a few reasons.
	CountFailedWrite(f converge.Facet, reason string)
}

// LogReporter is a Reporter that logs, and writes an Event about the object if it was refused.
type LogReporter struct {
	logger      *slog.Logger
	warn        WarnFunc
	failedWrite func(f converge.Facet, reason string)
	limit       *rate.Limiter // of what is reported of statuses: one cause may refuse those of all applications

	mu     sync.Mutex            // held from when an event is looked up until it is noted
	events *cache.LRUExpireCache // those that were written lately
}

// WarnFunc writes an Event.
type WarnFunc func(ctx context.Context, about corev1.ObjectReference, reason, message string) error

var _ Reporter = &LogReporter{}

// NewLogReporter returns a reporter. failedWrite counts failed writes.
func NewLogReporter(logger *slog.Logger, warn WarnFunc, failedWrite func(f converge.Facet, reason string)) *LogReporter {
	return &LogReporter{
		logger: logger, warn: warn, failedWrite: failedWrite, limit: rate.NewLimiter(rate.Every(time.Second), 20),
		events: cache.NewLRUExpireCache(maxEvents),
	}
}

// event is what must not be reported at every resync.
type event struct {
	agent, message string
	about          types.UID
}

// eventInterval is the time between two Events about the same refusal. API servers forget Events after an hour.
const eventInterval = 30 * time.Minute

// maxEvents bounds the Events that are remembered, some 10 MB: an expired one stays until its place is wanted.
const maxEvents = 10_000

// isDue reports whether an Event is to be written, and notes that it is. limit, if set, limits those of all objects together.
func (r *LogReporter) isDue(e event, limit *rate.Limiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, written := r.events.Get(e); written || limit != nil && !limit.Allow() {
		return false
	}
	r.events.Add(e, nil, eventInterval)
	return true
}

// CountFailedWrite implements Reporter.
func (r *LogReporter) CountFailedWrite(f converge.Facet, reason string) { r.failedWrite(f, reason) }

// Object implements Reporter.
func (r *LogReporter) Object(ctx context.Context, agent string, kind Kind, object *argocd.Record, result converge.Result) {
	logger := r.logger.With("kind", string(kind), "name", object.Name.Name, "reason", result.Reason)
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
	message := shorten(who + " refused it: " + result.Reason)
	if r.isDue(event{agent, message, object.UID}, nil) {
		r.write(ctx, logger, reference(kind.apiVersion(), string(kind), &object.Head), reason, message)
	}
}

// StatusRefusedHere implements Reporter.
func (r *LogReporter) StatusRefusedHere(ctx context.Context, agent string, app *argocd.App, reason string) {
	message := shorten("The status that agent " + agent + " sent could not be written: " + reason)
	if r.isDue(event{agent, message, app.UID}, r.limit) {
		logger := r.logger.With("agent", agent, "application", app.Name.String(), "reason", reason)
		logger.Warn("Failed to write application status")
		r.write(ctx, logger, applicationReference(app), "StatusRefused", message)
	}
}

// StatusRefusedByHub implements Reporter.
func (r *LogReporter) StatusRefusedByHub(ctx context.Context, app *argocd.App, result converge.Result) {
	logger := r.logger.With("application", app.Name.String(), "reason", result.Reason)
	if result.Code == converge.Retry {
		if r.isDue(event{"", shorten("retry: " + result.Reason), app.UID}, r.limit) {
			logger.Warn("Hub failed to write application status; retrying")
		}
		return
	}
	message := shorten("The hub refused its status: " + result.Reason)
	if !r.isDue(event{"", message, app.UID}, r.limit) {
		return
	}
	logger.Warn("Hub refused application status")
	r.write(ctx, logger, applicationReference(app), "StatusRefusedByHub", message)
}

// Pruned implements Reporter.
func (r *LogReporter) Pruned(ctx context.Context, app *argocd.App) {
	const remedy = "sync it on the hub, or have the agent run with --on-application-recreate=resync"
	if !r.isDue(event{"", "pruned", app.UID}, r.limit) {
		return
	}
	logger := r.logger.With("application", app.Name.String(), "remedy", remedy)
	logger.Warn("Created an Application again that was deleted on the spoke; resources that were pruned with it stay away until a sync")
	r.write(ctx, logger, applicationReference(app), "CreatedAgain",
		"It was deleted on this cluster, where the hub decides, and was created again. Resources that Argo CD pruned with it stay away until a sync: "+remedy)
}

func (r *LogReporter) write(ctx context.Context, logger *slog.Logger, about corev1.ObjectReference, reason, message string) {
	if err := r.warn(ctx, about, reason, message); err != nil && ctx.Err() == nil {
		logger.Warn("Failed to create Event", "error", err)
	}
}

func applicationReference(app *argocd.App) corev1.ObjectReference {
	return reference(argocd.GroupVersion.String(), argocd.Applications().Kind, &app.Head)
}

func reference(apiVersion, kind string, h *argocd.Head) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: h.Name.Namespace, Name: h.Name.Name, UID: h.UID}
}
