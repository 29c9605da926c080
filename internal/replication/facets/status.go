package facets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// statusPayload is what a spoke says of an application.
type statusPayload struct {
	Status json.RawMessage `json:"status,omitempty"`
	// Operation is one that runs on the spoke without the hub's asking, for example an automated sync.
	Operation json.RawMessage `json:"operation,omitempty"`
	// Finished names the intents that the spoke took from the hub and that have ended.
	Finished finishedIntents `json:"finished,omitzero"`
}

type finishedIntents struct {
	Operation string `json:"operation,omitempty"`
	Refresh   string `json:"refresh,omitempty"`
}

// statusVersion is the version of a statusPayload. It is made of hashes, because the hub keeps no more of a status.
func statusVersion(status converge.Version, mirror string, o finishedIntents) converge.Version {
	if status == (converge.Version{}) && mirror == "" && o == (finishedIntents{}) {
		return converge.Version{}
	}
	return converge.VersionOf(fmt.Appendf(status[:], "|%s|%s|%s", mirror, o.Operation, o.Refresh))
}

// mirrorOf names an operation of the spoke's own, empty if there is none. Only the spoke asks: what is an intent among its
// operations the hub wrote there.
func mirrorOf(operation json.RawMessage) string {
	if operation == nil || argocd.OperationInfo(operation, argocd.InfoIntent) != "" {
		return ""
	}
	return converge.VersionOf(operation).String()
}

// statusSource is the spoke's half of the application-status facet.
type statusSource struct {
	Side

	// toHub, if set, maps the spoke's namespace to the hub's.
	toHub func() argocd.Move
	// report reports a status that the hub could not write.
	report func(context.Context, *argocd.App, converge.Result)
}

var _ converge.Source = statusSource{}

// All yields the status of every application that is shared.
func (s statusSource) All() iter.Seq2[converge.Key, converge.State] { return s.all(s.statusState) }

// statusState is the state of what a spoke says of an application, zero if there is nothing to say.
func (s statusSource) statusState(app *argocd.App) converge.State {
	_, version, err := s.status(app)
	if err != nil {
		return converge.State{}
	}
	return s.stateOf(app, version)
}

// stateOf is the state of what a spoke says of an application whose status has that version.
func (s statusSource) stateOf(app *argocd.App, version converge.Version) converge.State {
	return s.state(app, statusVersion(version, mirrorOf(app.Operation), finishedOf(app)))
}

// status returns an application's status as the hub should show it, nil if it is as it came, and the version of that.
func (s statusSource) status(app *argocd.App) (json.RawMessage, converge.Version, error) {
	if s.toHub != nil && app.Status.Nests {
		return s.toHub().Status(app.Status)
	}
	return nil, app.Status.Version, nil
}

// finishedOf returns which of the intents that an application took from the hub have ended.
func finishedOf(app *argocd.App) finishedIntents {
	t := takenBy(app)
	var o finishedIntents
	if t.Operation != argocd.OperationInfo(app.Operation, argocd.InfoIntent) && !neverStarted(app, t) {
		o.Operation = t.Operation
	}
	if _, pending := app.Annotations[argocd.AnnotationRefresh]; !pending {
		o.Refresh = t.Refresh
	}
	return o
}

// Project returns what the spoke says of an application.
func (s statusSource) Project(key converge.Key) (converge.Object, bool) {
	app, ok := s.get(key)
	if !ok {
		return converge.Object{}, false
	}
	p, state, err := s.statusOf(app)
	if err != nil || state == (converge.State{}) {
		return converge.Object{}, false
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return converge.Object{}, false
	}
	return converge.Object{State: state, Payload: payload}, true
}

// statusOf returns what the spoke says of an application, and the state of that.
func (s statusSource) statusOf(app *argocd.App) (statusPayload, converge.State, error) {
	status, version, err := s.status(app)
	if err == nil && status == nil {
		status, err = app.Status.Display()
	}
	p := statusPayload{Status: status, Finished: finishedOf(app)}
	if mirrorOf(app.Operation) != "" {
		p.Operation = app.Operation
	}
	return p, s.stateOf(app, version), err
}

// ReportResult reports a status that the hub could not write. Nothing is cleared when it could again: the
// status is then there to see.
func (s statusSource) ReportResult(ctx context.Context, key converge.Key, r converge.Result) error {
	if app, ok := s.get(key); ok && r.Code != converge.Done {
		s.report(ctx, app, r)
	}
	return nil
}

// HasRefusedCondition returns false: a status that is refused is reported, and sets no condition.
func (s statusSource) HasRefusedCondition(converge.Key) bool { return false }

// statusReplica is the hub's half of the application-status facet.
type statusReplica struct {
	Side

	// refused reports that the API server does not let a status be written.
	refused func(ctx context.Context, app *argocd.App, reason string)
}

var _ converge.Replica = statusReplica{}

// All yields the status of the agent's applications.
func (r statusReplica) All() iter.Seq2[converge.Key, converge.State] { return r.all(r.shownState) }

// Held returns what the hub holds of a status.
func (r statusReplica) Held(key converge.Key) converge.State { return r.held(key, r.shownState) }

// shownState is the state of the status that a hub's application shows, zero if it shows none.
func (r statusReplica) shownState(app *argocd.App) converge.State {
	if app == nil {
		return converge.State{}
	}
	mirror := argocd.OperationInfo(app.Operation, argocd.InfoMirror)
	if agent, operation, ok := strings.Cut(mirror, "/"); ok && agent == r.agent {
		mirror = operation
	}
	return r.state(app, statusVersion(app.Status.VersionOf(r.agent), mirror, finishedIntents{}))
}

// Apply shows on the hub what the spoke says. It takes back intents that are over and no others.
func (r statusReplica) Apply(ctx context.Context, key converge.Key, obj converge.Object) (converge.State, error) {
	var want statusPayload
	if err := strictjson.Unmarshal(obj.Payload, &want); err != nil {
		return converge.State{}, fmt.Errorf("decode the status: %w: %w", converge.ErrRefused, err)
	}
	app, err := r.changeShared(ctx, key, func(app *argocd.App) (argocd.Patch, error) {
		switch {
		case app != nil && r.uid(app) == obj.UID:
		case r.isSource:
			return nil, nil // it is of an application that is no more
		default:
			return nil, errNotThere
		}
		return r.show(app, want)
	})
	r.report(ctx, key, err)
	return r.shownState(app), err
}

// report reports that a status could not be written, unless that may pass by itself.
func (r statusReplica) report(ctx context.Context, key converge.Key, err error) {
	if err == nil || !errors.Is(err, converge.ErrRefused) && failureReason(err) != reasonWebhook {
		return
	}
	if app, ok := r.get(key); ok {
		r.refused(ctx, app, err.Error())
	}
}

// show returns the patch that makes the hub's application show what the spoke says. The operation that the spoke says is in
// progress is one to show, whatever is in it, and nothing that is asked for.
func (r statusReplica) show(app *argocd.App, want statusPayload) (argocd.Patch, error) {
	var patch argocd.Patch
	mirror, wanted := argocd.OperationInfo(app.Operation, argocd.InfoMirror), ""
	if len(want.Operation) > 0 {
		wanted = r.agent + "/" + converge.VersionOf(want.Operation).String()
	}
	intent := argocd.OperationInfo(app.Operation, argocd.InfoIntent)
	operated := intent != "" && intent == want.Finished.Operation
	switch {
	case mirror != wanted && wanted != "" && (mirror != "" || app.Operation == nil):
		operation, err := argocd.DisplayOperation(want.Operation, wanted)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", converge.ErrRefused, err)
		}
		patch.Replace(operation, "operation")
	case mirror != "" && wanted == "", operated:
		patch.Remove("operation")
	}
	_, name, _ := refreshOf(app)
	refreshed := name != "" && name == want.Finished.Refresh
	if refreshed {
		withdrawRefresh(app, &patch)
	}
	status, raw, err := r.overlay(app, want.Status)
	if err != nil {
		return nil, err
	}
	terminated := app.Status.Phase == argocd.PhaseTerminating && status.Phase != argocd.PhaseTerminating
	conditions := app.Status.AgentConditions
	if operated || refreshed || terminated {
		conditions = ofIntent.without(conditions) // what is over was taken
	}
	if status.VersionOf(r.agent) == app.Status.VersionOf(r.agent) {
		app.Status.PatchAgentConditions(&patch, conditions)
		return patch, nil
	}
	if raw, err = argocd.WithAgentConditions(raw, conditions); err != nil {
		return nil, err
	}
	patch.Replace(raw, "status")
	return patch, nil
}

// overlay returns the status that the hub's application should have, without the agent's conditions, and that in JSON. What
// the hub adds stays: that the operation is to be terminated, until it is over.
func (r statusReplica) overlay(app *argocd.App, want json.RawMessage) (argocd.Status, json.RawMessage, error) {
	want, err := argocd.DisplayStatus(want, r.agent)
	if err != nil {
		return argocd.Status{}, nil, fmt.Errorf("%w: %w", converge.ErrRefused, err)
	}
	status := argocd.ReadStatus(want)
	if status.HasAgentConditions() { // those are in the name of this principal, and no agent that is honest sends any
		want = argocd.WithoutAgentConditions(want)
		status = argocd.ReadStatus(want)
	}
	if app.Status.Phase == argocd.PhaseTerminating && status.Phase == argocd.PhaseRunning &&
		app.Status.StartedAt == status.StartedAt {
		raw, err := argocd.WithPhase(want, argocd.PhaseTerminating)
		return argocd.ReadStatus(raw), raw, err
	}
	if want == nil {
		want = json.RawMessage("{}")
	}
	return status, want, nil
}

// Remove clears the status of an application that the spoke does not have.
func (r statusReplica) Remove(ctx context.Context, key converge.Key, uid string) (converge.State, error) {
	app, err := r.changeShared(ctx, key, func(app *argocd.App) (argocd.Patch, error) {
		if app == nil || app.Deleting || uid != "" && r.uid(app) != uid {
			return nil, nil
		}
		return r.show(app, statusPayload{})
	})
	if app != nil && app.Deleting {
		return converge.State{}, err
	}
	return r.shownState(app), err
}
